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
type Dialer struct {
	log       *slog.Logger
	span      func(context.Context) trace.Span
	byAddress sync.Map // "host:port", as given to daprd, to its *called
	byApp     sync.Map // catalog.App to its *called
	byConn    sync.Map // daprd's *grpc.ClientConn to its *channel
	remotes   remotes
	hosts     *hosts
	watcher   watcher

	reachability reachability

	resolver atomic.Pointer[activeResolver]

	mu            sync.Mutex
	channels      map[*channel]struct{}
	stopFollowing context.CancelFunc // of follow; nil while there is no channel
	followed      chan struct{}
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
type activeResolver struct {
	Resolver
	retryCutOff bool
	replaced    chan struct{} // closed when another is used
}

// New returns Names that know no app until Use. spanFromContext finds the span that a call is
// part of: [trace.SpanFromContext], or daprd's own function, since daprd keeps its span under
// a key of its own.
func New(log *slog.Logger, spanFromContext func(context.Context) trace.Span) *Dialer {
	registerBalancer()
	n := &Dialer{
		log: log, span: spanFromContext, channels: map[*channel]struct{}{}, hosts: newHosts(log, net.DefaultResolver.LookupHost),
	}
	n.hosts.onChange = n.refreshAll
	n.reachability.endpoints = map[*endpoint]reachState{}
	n.reachability.report = func(all []nameresolution.Unreached) { n.resolver.Load().ReportUnreached(all) }
	n.watcher.conns = map[*conn]struct{}{}
	return n
}

// Use makes calls follow the views of a resolver from now on. daprd loads its components
// anew when its configuration changes, so this may be called again.
func (d *Dialer) Use(r Resolver) {
	old := d.resolver.Swap(&activeResolver{r, r.RetryCutOff(), make(chan struct{})})
	if old != nil {
		close(old.replaced)
	}
}

// view is the view of now; nil where there is none.
func (d *Dialer) currentView() *catalog.View {
	s := d.resolver.Load()
	if s == nil {
		return nil
	}
	view, _ := s.View()
	return view
}

// Name is what daprd is to dial for an app, whose lookup ended with this address: the app's
// own name, or the address where the view has no entry of the app any more.
func (d *Dialer) Name(app catalog.App, address string) string {
	view := d.currentView()
	if view == nil {
		return address
	}
	if _, ok := view.Entries.Get(app); !ok {
		return address
	}
	if name, ok := d.byApp.Load(app); ok {
		return name.(*callee).address
	}
	domain := catalog.Domain(catalog.DefaultDomain)
	if view.Gateways != nil && view.Gateways.Domain != "" {
		domain = view.Gateways.Domain
	}
	address = app.ID + "." + app.Namespace + "." + string(domain) + ":" + strconv.Itoa(catalog.DefaultGatewayPort)
	name, _ := d.byApp.LoadOrStore(app, &callee{app: app, address: address, conns: map[*grpc.ClientConn]*channel{}})
	d.byAddress.Store(address, name)
	return address
}

// Close ends all connections and waits for what runs. Calls that are under way are cut off.
func (d *Dialer) Close() {
	d.mu.Lock()
	channels := d.channels
	d.channels = map[*channel]struct{}{}
	done := d.endFollowing()
	d.mu.Unlock()
	if done != nil {
		<-done
	}
	for c := range channels {
		c.close()
	}
	d.hosts.close()
	d.watcher.close()
}

// open returns a channel to an app: one that a connection left, or a new one. It wants the
// lock.
func (d *Dialer) acquireChannel(to *callee) (*channel, error) {
	if last := len(to.idle) - 1; last >= 0 {
		c := to.idle[last]
		to.idle = to.idle[:last]
		c.idleTimer.Stop()
		return c, nil
	}
	c, err := newChannel(d, to)
	if err != nil {
		return nil, err
	}
	d.channels[c] = struct{}{}
	if d.followed == nil {
		ctx, stop := context.WithCancel(context.Background())
		d.stopFollowing, d.followed = stop, make(chan struct{})
		go d.followViews(ctx, d.followed)
	}
	return c, nil
}

// lingerFor is how long a channel that no facade has is kept. daprd closes a connection
// when one call on it ends with Unavailable, and opens another with the next.
const channelIdleTimeout = 30 * time.Second

// leave lets go of a channel. It wants the lock.
func (d *Dialer) releaseChannel(c *channel) {
	if _, ok := d.channels[c]; !ok {
		return
	}
	c.callee.idle = append(c.callee.idle, c)
	c.idleTimer = time.AfterFunc(channelIdleTimeout, func() { d.closeUnused(c) })
}

// sweep closes a channel that is still free, once no call is under way on it.
func (d *Dialer) closeUnused(c *channel) {
	d.mu.Lock()
	at := slices.Index(c.callee.idle, c)
	if _, ok := d.channels[c]; !ok || at < 0 {
		d.mu.Unlock()
		return
	}
	if c.calls.Load() > 0 {
		c.idleTimer.Reset(channelIdleTimeout)
		d.mu.Unlock()
		return
	}
	c.callee.idle = slices.Delete(c.callee.idle, at, at+1)
	delete(d.channels, c)
	var done chan struct{}
	if len(d.channels) == 0 {
		done = d.endFollowing()
	}
	d.mu.Unlock()
	if done != nil {
		<-done
	}
	c.close()
}

// rest ends follow, and says what is closed once it has ended. It wants the lock.
func (d *Dialer) endFollowing() chan struct{} {
	done := d.followed
	if done != nil {
		d.stopFollowing()
		d.followed = nil
	}
	return done
}

// follow shows each view to all channels.
func (d *Dialer) followViews(ctx context.Context, done chan struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		s := d.resolver.Load()
		_, changed := s.View()
		d.refreshAll()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-s.replaced:
		}
	}
}

func (d *Dialer) refreshAll() {
	d.mu.Lock()
	channels := make([]*channel, 0, len(d.channels))
	for c := range d.channels {
		channels = append(channels, c)
	}
	d.mu.Unlock()
	for _, c := range channels {
		c.refresh()
	}
}

// channelOf is the channel behind a connection of daprd's; nil where it is not ours.
func (d *Dialer) channelFor(cc *grpc.ClientConn) *channel {
	if c, ok := d.byConn.Load(cc); ok {
		return c.(*channel)
	}
	return d.bindChannel(cc)
}
