package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// leases is how many leases a replica has, with numbers that follow each other, a key's by
// its hash. Where etcd has users, it looks at every key of a lease when one more is put
// under it: with one lease for all, what many instances cost would grow with their square.
const leases = 32

func firstLease() int64 { return rand.Int64N(1<<62)&^(leases-1) + leases }

// replicaOf is the first lease of the replica that has a lease.
func replicaOf(lease int64) int64 { return lease &^ (leases - 1) }

// leaseOf is the lease that a key below the root is written under.
func (s *Source) leaseOf(key string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return s.lease + int64(h.Sum32()%leases)
}

// Run keeps what is registered here written, under a lease that it keeps, until ctx ends.
// Then it returns nil, and leaves what was written to the lease. A server that is away is
// asked again.
func (s *Source) Run(ctx context.Context) error {
	var backoff configstore.Backoff
	for {
		var held time.Time
		err := s.hold(ctx, func() { held = time.Now() })
		if ctx.Err() != nil {
			return nil
		}
		s.writing(err)
		if !backoff.Wait(ctx, err, held) {
			return nil
		}
	}
}

// hold gets the lease, and keeps it and what is written under it until something fails.
func (s *Source) hold(ctx context.Context, holds func()) error {
	s.client.Retry()
	granted := s.grant(ctx)
	if granted != nil && rpctypes.Error(granted) != rpctypes.ErrNoSpace {
		return s.fail(ctx, "get a lease for", granted)
	}
	holds()
	group, inside := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := s.keepAlive(inside)
		s.client.Forget()
		if granted != nil && errors.Is(err, errLapsed) {
			err = granted // a server that is full gives none, and keeps those that it has given
		}
		return s.fail(inside, "keep the lease of", err)
	})
	group.Go(func() error { return s.keepWriting(inside) })
	return group.Wait()
}

// keepWriting writes until ctx ends or a lease is missing. A server that takes nothing,
// since it is full, is no reason to let leases run out, and with them what was written before.
func (s *Source) keepWriting(ctx context.Context) error {
	var backoff configstore.Backoff
	for {
		var begun time.Time
		err := s.write(ctx, func() {
			begun = time.Now()
			s.writing(nil)
		})
		missing := rpctypes.Error(err) == rpctypes.ErrLeaseNotFound
		err = s.fail(ctx, "write", err)
		if missing || ctx.Err() != nil {
			return err
		}
		s.writing(err)
		s.client.Forget()
		if !backoff.Wait(ctx, err, begun) {
			return ctx.Err()
		}
	}
}

// grant gets the leases, or finds that it has them still. Where one was lost, all is
// written again.
func (s *Source) grant(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, s.client.Config.Timeout)
	defer cancel()
	group, inside := errgroup.WithContext(timed)
	group.SetLimit(grantsAtOnce)
	var made atomic.Bool
	for n := range int64(leases) {
		group.Go(func() error {
			request := &pb.LeaseGrantRequest{TTL: int64(math.Ceil(s.ttl.Seconds())), ID: s.lease + n}
			_, err := clientv3.RetryLeaseClient(s.client.Client).LeaseGrant(inside, request)
			if rpctypes.Error(err) == rpctypes.ErrLeaseExist {
				return nil // what is missing under it, Watch sees
			}
			if err == nil {
				made.Store(true)
			}
			return err
		})
	}
	err := group.Wait()
	if made.Load() {
		s.registered.rewriteAll() // also where another could not be got: the next time this one is there
	}
	return err
}

const grantsAtOnce = 8

// announcement is what is written of this replica.
func (s *Source) announcement() string {
	text, _ := json.Marshal(s.self()) // of such fields it can't fail
	return string(text)
}

// announce says that this replica is there, and all that is registered with it is written:
// see replicated.reset.
func (s *Source) announce(ctx context.Context, text string) error {
	timed, cancel := context.WithTimeout(ctx, s.client.Config.Timeout)
	defer cancel()
	key := s.root + replicas + strconv.FormatInt(s.lease, 16)
	_, err := s.client.Put(timed, key, text, clientv3.WithLease(clientv3.LeaseID(s.lease)))
	return err
}

// Settle says to other replicas that this one knows what runs: what it has of them, and
// of its own sidecars, which have had the time to register.
func (s *Source) Settle() {
	s.settled.Store(true)
	s.registered.wakeWriter()
}

// errLapsed says that the lease has run out while the server could be reached: the process
// stood still, or the server lost what it had.
var errLapsed = errors.New("the lease has run out; another is got, and everything written again")

// keepAlive renews the leases until it can't. The error is never nil.
func (s *Source) keepAlive(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := pb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return err
	}
	tick := time.NewTicker(s.ttl / 4)
	defer tick.Stop()
	for {
		patience := time.AfterFunc(s.ttl/2, func() { cancel(errSilent) })
		left, err := s.renew(stream)
		patience.Stop()
		switch {
		case errors.Is(context.Cause(ctx), errSilent):
			return fmt.Errorf("%w within %s", errSilent, s.ttl/2)
		case err != nil:
			return err
		case left <= 0:
			return errLapsed
		}
		select {
		case <-tick.C:
			s.registered.wakeWriter() // what it has in common with others may have changed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errSilent = errors.New("the server does not answer")

// renew renews every lease once, and returns how many seconds that which ends first has.
func (s *Source) renew(stream pb.Lease_LeaseKeepAliveClient) (left int64, err error) {
	for n := range int64(leases) {
		// An error of Send is told by Recv.
		_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: s.lease + n})
	}
	left = math.MaxInt64
	for range leases {
		answer, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		left = min(left, answer.TTL)
	}
	return left, nil
}
