// Package dial gives each app that daprd calls one name inside the process, and makes each
// call by the app's plan in the sidecar's view: a call chooses its endpoint when it begins,
// and goes on at another where that one can't be reached.
//
// daprd dials other sidecars as "name:port", which gRPC gives to its resolver "passthrough",
// and as "dns:///name:port" in Kubernetes mode. Both resolvers are wrapped: a name that
// [Names.Name] gave out is ours, and everything else goes where it went before, also for
// clients inside daprd that have nothing to do with service invocation.
package dial

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// Names knows how the apps behind its names are reached. It is safe for use by many
// goroutines.
type Names struct {
	log   *slog.Logger
	span  func(context.Context) trace.Span
	given sync.Map // "host:port", as given to daprd, to its *called
	names sync.Map // catalog.App to its *called
	conns sync.Map // daprd's *grpc.ClientConn to its *channel
	gates gates
	hosts *hosts
	watch watch

	evidence evidence

	source atomic.Pointer[source]

	mu       sync.Mutex
	channels map[*channel]struct{}
	stop     context.CancelFunc // of follow; nil while there is no channel
	done     chan struct{}
}

// Resolver is where plans come from, and who is told how calls fare.
type Resolver interface {
	// View is the view that lookups go by, nil before the first, and a channel that is closed
	// once another one stands.
	View() (view *catalog.View, changed <-chan struct{})
	// RetryCutOff tells whether a call that was cut off is made again elsewhere.
	RetryCutOff() bool
	// Failed is told, in a goroutine of its own, of each attempt to connect to an address of
	// the caller's own cluster or network that fails.
	Failed(app catalog.App, address string)
	// ReportUnreached is told all that is not reached in other clusters, when it changes.
	ReportUnreached([]nameresolution.Unreached)
}

// source is the resolver in use.
type source struct {
	Resolver
	retry    bool
	replaced chan struct{} // closed when another is used
}

// New returns Names that know no app until Use. spanFromContext finds the span that a call is
// part of: [trace.SpanFromContext], or daprd's own function, since daprd keeps its span under
// a key of its own.
func New(log *slog.Logger, spanFromContext func(context.Context) trace.Span) *Names {
	registerPolicy()
	n := &Names{
		log: log, span: spanFromContext, channels: map[*channel]struct{}{}, hosts: newHosts(log, net.DefaultResolver.LookupHost),
	}
	n.hosts.changed = n.lookAll
	n.evidence.points = map[*point]stands{}
	n.evidence.report = func(all []nameresolution.Unreached) { n.source.Load().ReportUnreached(all) }
	n.watch.conns = map[*conn]struct{}{}
	return n
}

// Use makes calls follow the views of a resolver from now on. daprd loads its components
// anew when its configuration changes, so this may be called again.
func (n *Names) Use(r Resolver) {
	old := n.source.Swap(&source{r, r.RetryCutOff(), make(chan struct{})})
	if old != nil {
		close(old.replaced)
	}
}

// view is the view of now; nil where there is none.
func (n *Names) view() *catalog.View {
	s := n.source.Load()
	if s == nil {
		return nil
	}
	view, _ := s.View()
	return view
}

// Name is what daprd is to dial for an app, whose lookup ended with this address: the app's
// own name, or the address where the view has no entry of the app any more.
func (n *Names) Name(app catalog.App, address string) string {
	view := n.view()
	if view == nil {
		return address
	}
	if _, ok := view.Entries.Get(app); !ok {
		return address
	}
	if name, ok := n.names.Load(app); ok {
		return name.(*called).address
	}
	domain := catalog.Domain(catalog.DefaultDomain)
	if view.Gateways != nil && view.Gateways.Domain != "" {
		domain = view.Gateways.Domain
	}
	address = app.ID + "." + app.Namespace + "." + string(domain) + ":" + strconv.Itoa(catalog.DefaultGatewayPort)
	name, _ := n.names.LoadOrStore(app, &called{app: app, address: address, conns: map[*grpc.ClientConn]*channel{}})
	n.given.Store(address, name)
	return address
}

// Close ends all connections and waits for what runs. Calls that are under way are cut off.
func (n *Names) Close() {
	n.mu.Lock()
	channels := n.channels
	n.channels = map[*channel]struct{}{}
	done := n.rest()
	n.mu.Unlock()
	if done != nil {
		<-done
	}
	for c := range channels {
		c.close()
	}
	n.hosts.close()
	n.watch.close()
}

// open returns a channel to an app: one that a connection left, or a new one. It wants the
// lock.
func (n *Names) open(to *called) (*channel, error) {
	if last := len(to.free) - 1; last >= 0 {
		c := to.free[last]
		to.free = to.free[:last]
		c.linger.Stop()
		return c, nil
	}
	c, err := newChannel(n, to)
	if err != nil {
		return nil, err
	}
	n.channels[c] = struct{}{}
	if n.done == nil {
		ctx, stop := context.WithCancel(context.Background())
		n.stop, n.done = stop, make(chan struct{})
		go n.follow(ctx, n.done)
	}
	return c, nil
}

// lingerFor is how long a channel that no facade has is kept. daprd closes a connection
// when one call on it ends with Unavailable, and opens another with the next.
const lingerFor = 30 * time.Second

// leave lets go of a channel. It wants the lock.
func (n *Names) leave(c *channel) {
	if _, ok := n.channels[c]; !ok {
		return
	}
	c.to.free = append(c.to.free, c)
	c.linger = time.AfterFunc(lingerFor, func() { n.sweep(c) })
}

// sweep closes a channel that is still free, once no call is under way on it.
func (n *Names) sweep(c *channel) {
	n.mu.Lock()
	at := slices.Index(c.to.free, c)
	if _, ok := n.channels[c]; !ok || at < 0 {
		n.mu.Unlock()
		return
	}
	if c.calls.Load() > 0 {
		c.linger.Reset(lingerFor)
		n.mu.Unlock()
		return
	}
	c.to.free = slices.Delete(c.to.free, at, at+1)
	delete(n.channels, c)
	var done chan struct{}
	if len(n.channels) == 0 {
		done = n.rest()
	}
	n.mu.Unlock()
	if done != nil {
		<-done
	}
	c.close()
}

// rest ends follow, and says what is closed once it has ended. It wants the lock.
func (n *Names) rest() chan struct{} {
	done := n.done
	if done != nil {
		n.stop()
		n.done = nil
	}
	return done
}

// follow shows each view to all channels.
func (n *Names) follow(ctx context.Context, done chan struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		s := n.source.Load()
		_, changed := s.View()
		n.lookAll()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-s.replaced:
		}
	}
}

func (n *Names) lookAll() {
	n.mu.Lock()
	channels := make([]*channel, 0, len(n.channels))
	for c := range n.channels {
		channels = append(channels, c)
	}
	n.mu.Unlock()
	for _, c := range channels {
		c.look()
	}
}

// channelOf is the channel behind a connection of daprd's; nil where it is not ours.
func (n *Names) channelOf(cc *grpc.ClientConn) *channel {
	if c, ok := n.conns.Load(cc); ok {
		return c.(*channel)
	}
	return n.claim(cc)
}
