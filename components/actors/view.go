package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/addresses"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// How the bridge comes back to a service that it has lost. Until then the last view stands.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	maxView    = 64 << 20 // bytes
)

// follow keeps the view of the namespace's actors up to date until ctx ends.
func (b *Bridge) follow(ctx context.Context) error {
	if b.identity.Wait(ctx) != nil {
		return nil // ctx has ended
	}
	for turn, failures := 0, 0; ctx.Err() == nil; turn, failures = turn+1, failures+1 {
		start := time.Now()
		err := b.stream(ctx, turn)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(start) > lastRetry {
			failures = 0
		}
		b.log.Warn("lost the resolver service; bridging by the last view, reconnecting", "resolver", b.cfg.Resolver, "err", err)
		live.Sleep(ctx, live.Jitter(live.Backoff(firstRetry, lastRetry, failures)))
	}
	return nil
}

// replica connects to one of the places that addresses of a configuration stand for, each in its turn.
func (b *Bridge) replica(ctx context.Context, configured string, turn, most int, expect func(identity.ID) error) (*grpc.ClientConn, error) {
	var all []string
	var failed error
	for one := range strings.SplitSeq(configured, ",") {
		if one = strings.TrimSpace(one); strings.HasPrefix(one, "unix:") {
			all = append(all, one)
			continue
		}
		stands, err := addresses.Of(ctx, addresses.System, one)
		failed = errors.Join(failed, err)
		for _, at := range stands {
			all = append(all, "passthrough:///"+at)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("look up %s: %w", configured, cmp.Or(failed, errors.New("it has no address")))
	}
	slices.Sort(all) // a name server shuffles them
	return grpc.NewClient(all[turn%len(all)], grpc.WithNoProxy(), grpc.WithTransportCredentials(b.identity.ClientCredentials(expect)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
}

// stream takes views from one stream until it ends.
func (b *Bridge) stream(ctx context.Context, turn int) error {
	conn, err := b.replica(ctx, b.cfg.Resolver, turn, maxView, identity.OneOf(identity.ServiceApp(b.cfg.ResolverNamespace, b.cfg.Cluster)))
	if err != nil {
		return fmt.Errorf("resolver: %w", err)
	}
	defer conn.Close()
	stream, err := v1alpha1.NewActorsClient(conn).Watch(ctx, &v1alpha1.ActorsRequest{Namespace: b.cfg.Namespace})
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetCluster() != b.cfg.Cluster {
			return fmt.Errorf("the resolver service at %s is of cluster %q, and this bridge of %s", b.cfg.Resolver, m.GetCluster(), b.cfg.Cluster)
		}
		b.view.Store(wire.ParseActors(b.cfg.Namespace, m))
	}
}
