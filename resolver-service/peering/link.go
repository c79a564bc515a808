package peering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// maxBackoff is the longest wait between two attempts to reach a peer.
const maxBackoff = 5 * time.Second

// link is the connection to one peer. Its run goroutine owns the lease and the
// knowledge; a second one, talk, does the network's part.
type link struct {
	cfg      Config
	cluster  string
	object   live.Value[*catalog.Cluster]
	topology *topology.Topology
	identity *identity.Source
	log      *slog.Logger

	lease     *lease
	knowledge *knowledge
	words     chan word
	settling  *settling
	status    linkStatus
}

// word is a message of the peer on its way to the run goroutine. done has room for
// the answer.
type word struct {
	message *v1alpha1.ExportsResponse
	done    chan<- error
}

// run keeps the link up until ctx ends. What the peer said stands after that.
func (l *link) run(ctx context.Context) {
	object, _, changed := l.object.Follow()
	l.lease = newLease(object.StaleAfter)
	defer l.lease.stop()
	stop := l.startTalking(ctx, object.Gateways)
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-l.words:
			w.done <- l.take(ctx, w.message)
		case <-l.lease.out():
			l.expire(ctx)
		case <-changed:
			before := object.Gateways
			object, _, changed = l.object.Follow()
			l.lease.extend(object.StaleAfter)
			if !slices.Equal(before, object.Gateways) {
				stop()
				stop = l.startTalking(ctx, object.Gateways)
			}
		}
	}
}

// take hands what the peer said to the topology. That its lease goes on is news only
// after it had run out.
func (l *link) take(ctx context.Context, m *v1alpha1.ExportsResponse) error {
	change, err := l.knowledge.take(l.cluster, m)
	if err != nil {
		return err
	}
	renewed := l.lease.heard()
	if renewed {
		change.Lease = topology.Fresh
	}
	l.status.heard(len(l.knowledge.digests), l.knowledge.err())
	if !renewed && !change.Full && len(change.Put) == 0 && len(change.Delete) == 0 {
		return nil
	}
	if _, err := l.topology.Apply(ctx, topology.Change{Peers: []topology.PeerChange{change}}); err != nil {
		return fmt.Errorf("apply what cluster %s exports: %w", l.cluster, err)
	}
	l.settling.heard(l.cluster)
	return nil
}

func (l *link) expire(ctx context.Context) {
	l.lease.lapse()
	l.status.lapsed()
	l.log.Warn("lease of a peer has run out; what it said stands where a selection asks for that",
		"peer", l.cluster, "after", l.lease.after.String())
	change := topology.PeerChange{Cluster: l.cluster, Lease: topology.Expired}
	if _, err := l.topology.Apply(ctx, topology.Change{Peers: []topology.PeerChange{change}}); err != nil && ctx.Err() == nil {
		l.log.Error("lease not withdrawn", "peer", l.cluster, "err", err)
	}
}

// startTalking starts the network's part, and returns what ends it and waits.
func (l *link) startTalking(ctx context.Context, gateways []string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { l.talk(ctx, gateways) })
	return func() {
		cancel()
		done.Wait()
	}
}

// talk makes one connection after the other. Its waits grow with each failure and
// are spread out, so that many peers do not come back at once.
func (l *link) talk(ctx context.Context, gateways []string) {
	for failures := 0; ; failures++ {
		heard, err := l.converse(ctx, gateways)
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures = 0
		}
		if l.status.failed(err) {
			l.log.Warn("peer out of reach; trying again", "peer", l.cluster, "gateways", gateways, "err", err)
		}
		select {
		case <-time.After(backoff(failures)):
		case <-ctx.Done():
			return
		}
	}
}

func backoff(failures int) time.Duration {
	d := min(100*time.Millisecond<<min(failures, 10), maxBackoff)
	return d/2 + rand.N(d/2)
}

// converse makes a connection and hands on every message until it fails, and tells
// whether there was one.
func (l *link) converse(ctx context.Context, gateways []string) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(firstWordWithin, func() {
		cancel(errors.New("connected, but nothing more was heard"))
	})
	defer silence.Stop()
	conn, err := l.dial(gateways)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stream, err := v1alpha1.NewPeeringClient(conn).Exports(ctx,
		&v1alpha1.ExportsRequest{Cluster: l.cfg.Cluster, Known: l.knowledge.known()})
	for err == nil {
		var m *v1alpha1.ExportsResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		silence.Reset(nextWordWithin)
		if err = l.hand(ctx, m); err == nil && !heard {
			heard = true
			l.log.Info("peer connected", "peer", l.cluster, "exports", len(m.GetPut()))
		}
	}
	if cause := context.Cause(ctx); cause != nil && status.Code(err) == codes.Canceled {
		err = cause
	}
	return heard, plain(err)
}

// maxReason is how much of what a peer gives as its reason is logged and told, in bytes.
const maxReason = 1 << 10

// plain is an error without what gRPC wraps it in.
func plain(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	message := s.Message()
	if len(message) > maxReason { // the peer may have written it
		message = message[:maxReason] + "…"
	}
	for _, wrapping := range []string{`connection error: desc = "`, "transport: Error while dialing: ", "transport: "} {
		if i := strings.LastIndex(message, wrapping); i >= 0 {
			message = message[i+len(wrapping):]
		}
	}
	return errors.New(strings.ReplaceAll(strings.TrimSuffix(message, `"`), `\"`, `"`))
}

// hand gives a message to the run goroutine and waits until it has been taken in. A
// peer under another name is not believed.
func (l *link) hand(ctx context.Context, m *v1alpha1.ExportsResponse) error {
	if m.GetCluster() != l.cluster {
		return fmt.Errorf("the Cluster object is named %q, but its gateways lead to cluster %.64q; correct metadata.name or spec.gateways",
			l.cluster, m.GetCluster())
	}
	done := make(chan error, 1)
	select {
	case l.words <- word{m, done}:
		return <-done
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dial leads to the cluster's resolver service: its gateways pass on what asks for
// the reserved name. They are tried in their order.
func (l *link) dial(gateways []string) (*grpc.ClientConn, error) {
	addresses := manual.NewBuilderWithScheme("gateways")
	state := resolver.State{}
	for _, address := range gateways {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	addresses.InitialState(state)
	return grpc.NewClient(addresses.Scheme()+":///"+l.cluster,
		grpc.WithResolvers(addresses),
		grpc.WithNoProxy(),
		grpc.WithAuthority(l.cfg.Domain.PeerHost(l.cluster)),
		grpc.WithTransportCredentials(l.identity.PeerCredentials(l.cfg.Namespace, l.cluster)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	)
}
