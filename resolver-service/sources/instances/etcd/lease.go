package etcd

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
)

// leasesPerReplica is how many leases a replica has, with consecutive numbers; a key's hash
// chooses its lease. Where etcd has users, it looks at every key of a lease when one more is
// put under it. With one lease for all, the cost of many instances would grow with their square.
const leasesPerReplica = 32

// replicaOf is the first lease of the replica that has a lease.
func replicaOf(lease int64) int64 { return lease &^ (leasesPerReplica - 1) }

// leases are the leases of one replica, the same for the life of the process.
type leases struct {
	client *etcdclient.Client
	ttl    time.Duration
	first  int64
}

func newLeases(client *etcdclient.Client, ttl time.Duration) *leases {
	return &leases{client, ttl, rand.Int64N(1<<62)&^(leasesPerReplica-1) + leasesPerReplica}
}

// of is the lease that a key below the root is written under.
func (l *leases) of(key string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return l.first + int64(h.Sum32()%leasesPerReplica)
}

// grant gets the leases, or finds that it has them still. made tells whether one is new, also
// after an error: nothing is written under it.
func (l *leases) grant(ctx context.Context) (made bool, err error) {
	timed, cancel := context.WithTimeout(ctx, l.client.Config.Timeout)
	defer cancel()
	group, inside := errgroup.WithContext(timed)
	group.SetLimit(grantsAtOnce)
	var anyMade atomic.Bool
	for n := range int64(leasesPerReplica) {
		group.Go(func() error {
			request := &pb.LeaseGrantRequest{TTL: int64(math.Ceil(l.ttl.Seconds())), ID: l.first + n}
			_, err := clientv3.RetryLeaseClient(l.client.Client).LeaseGrant(inside, request)
			if rpctypes.Error(err) == rpctypes.ErrLeaseExist {
				return nil // what is missing under it, Watch sees
			}
			if err == nil {
				anyMade.Store(true)
			}
			return err
		})
	}
	err = group.Wait()
	return anyMade.Load(), err
}

const grantsAtOnce = 8

// errLapsed says that the lease has run out while the server could be reached: the process
// stood still, or the server lost what it had.
var errLapsed = errors.New("the lease has run out; another is got, and everything written again")

// keepAlive renews the leases until it can't, and calls renewed each time. The error is never
// nil.
func (l *leases) keepAlive(ctx context.Context, renewed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := pb.NewLeaseClient(l.client.ActiveConnection()).LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return err
	}
	tick := time.NewTicker(l.ttl / 4)
	defer tick.Stop()
	for {
		patience := time.AfterFunc(l.ttl/2, func() { cancel(errSilent) })
		left, err := l.renew(stream)
		patience.Stop()
		switch {
		case errors.Is(context.Cause(ctx), errSilent):
			return fmt.Errorf("%w within %s", errSilent, l.ttl/2)
		case err != nil:
			return err
		case left <= 0:
			return errLapsed
		}
		select {
		case <-tick.C:
			renewed()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errSilent = errors.New("the server does not answer")

// renew renews every lease once, and returns how many seconds that which ends first has.
func (l *leases) renew(stream pb.Lease_LeaseKeepAliveClient) (left int64, err error) {
	for n := range int64(leasesPerReplica) {
		// An error of Send is told by Recv.
		_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: l.first + n})
	}
	left = math.MaxInt64
	for range leasesPerReplica {
		answer, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		left = min(left, answer.TTL)
	}
	return left, nil
}
