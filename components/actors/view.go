package actors

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/identity"
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
	expect := identity.OneOf(identity.ServiceApp(b.cfg.ResolverNamespace, b.cfg.Cluster))
	var replicas []*grpc.ClientConn
	for address := range strings.SplitSeq(b.cfg.Resolver, ",") {
		target := strings.TrimSpace(address)
		if !strings.HasPrefix(target, "unix:") {
			target = "passthrough:///" + target
		}
		conn, err := grpc.NewClient(target, grpc.WithNoProxy(), grpc.WithTransportCredentials(b.identity.ClientCredentials(expect)),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxView)),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
		if err != nil {
			return fmt.Errorf("resolver %q: %w; want host:port or unix:///path", address, err)
		}
		defer conn.Close()
		replicas = append(replicas, conn)
	}
	if b.identity.Wait(ctx) != nil {
		return nil // ctx has ended
	}
	for turn, failures := 0, 0; ctx.Err() == nil; turn, failures = turn+1, failures+1 {
		start := time.Now()
		err := b.stream(ctx, replicas[turn%len(replicas)])
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

// stream takes views from one stream until it ends.
func (b *Bridge) stream(ctx context.Context, conn *grpc.ClientConn) error {
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
