package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// Run keeps what is registered here written, under a lease that it keeps, until ctx ends.
// Then it returns nil, and leaves what was written to the lease. A server that is away is
// asked again.
func (s *Source) Run(ctx context.Context) error {
	var pauses configstore.Pauses
	for {
		var held time.Time
		err := s.hold(ctx, func() {
			held = time.Now()
			s.writing(nil)
		})
		if ctx.Err() != nil {
			return nil
		}
		s.writing(err)
		if !pauses.Wait(ctx, err, held) {
			return nil
		}
	}
}

// hold gets the lease, and keeps it and what is written under it until something fails.
func (s *Source) hold(ctx context.Context, holds func()) error {
	if err := s.grant(ctx); err != nil {
		return s.fail(ctx, "get a lease for", err)
	}
	holds()
	group, inside := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := s.keepAlive(inside)
		s.client.Forget()
		return s.fail(inside, "keep the lease of", err)
	})
	group.Go(func() error { return s.fail(inside, "write", s.write(inside)) })
	return group.Wait()
}

// grant gets the lease, or finds that it has it still. What stood under one that was lost
// is written again.
func (s *Source) grant(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, s.client.Config.Timeout)
	defer cancel()
	seconds := int64(math.Ceil(s.ttl.Seconds()))
	_, err := clientv3.RetryLeaseClient(s.client.Client).LeaseGrant(timed, &pb.LeaseGrantRequest{TTL: seconds, ID: s.lease})
	switch rpctypes.Error(err) {
	case nil:
		s.own.anew()
		return nil
	case rpctypes.ErrLeaseExist:
		return nil // what is missing under it, Watch sees
	}
	return err
}

// announce says that this replica is there, and all that is registered with it is written:
// see others.reset.
func (s *Source) announce(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, s.client.Config.Timeout)
	defer cancel()
	key := s.root + replicas + strconv.FormatInt(s.lease, 16)
	_, err := s.client.Put(timed, key, strconv.Quote(s.replica), clientv3.WithLease(clientv3.LeaseID(s.lease)))
	return err
}

// errLapsed says that the lease has run out while the server could be reached: the process
// stood still, or the server lost what it had.
var errLapsed = errors.New("the lease has run out; another is got, and everything written again")

// keepAlive renews the lease until it can't. The error is never nil.
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
		patience := time.AfterFunc(s.ttl/4, func() { cancel(errSilent) })
		answer, err := s.renew(stream)
		patience.Stop()
		switch {
		case errors.Is(context.Cause(ctx), errSilent):
			return fmt.Errorf("%w within %s", errSilent, s.ttl/4)
		case err != nil:
			return err
		case answer.TTL <= 0:
			return errLapsed
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errSilent = errors.New("the server does not answer")

func (s *Source) renew(stream pb.Lease_LeaseKeepAliveClient) (*pb.LeaseKeepAliveResponse, error) {
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: s.lease}); err != nil {
		_, err := stream.Recv() // has the reason
		return nil, err
	}
	return stream.Recv()
}
