// Package dial gives each app that daprd calls one name inside the process. It makes each call by
// the app's plan in the sidecar's view: it chooses an endpoint when the call begins, and another
// one if that can't be reached.
//
// daprd dials other sidecars as "name:port", which gRPC gives to its resolver "passthrough", or
// as "dns:///name:port" in Kubernetes mode. The package wraps both resolvers. It answers the names
// that [Dialer.Name] has returned, and leaves all others to gRPC. So it does not touch clients in
// daprd that have nothing to do with service invocation.
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
	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts/lookup"
)

// Dialer names apps and makes the calls to them. It is safe for concurrent use.
type Dialer struct {
	Tap *traffic.Tap // gets single calls
	// Header reads a header of a call's first message, by its name in any case. It is set before the
	// first call. nil: messages have no headers.
	Header func(m any, name string) (value string)
	// Connect connects to "ip:port". It is set before the first call. nil: over TCP.
	Connect func(ctx context.Context, address string) (net.Conn, error)

	log       *slog.Logger
	span      func(context.Context) trace.Span
	answers   Answers
	byAddress sync.Map // "host:port", as returned by Name, to its *callee
	callees   sync.Map // calleeKey to its *callee
	byConn    sync.Map // daprd's *grpc.ClientConn to its *channel
	remotes   remotes
	hosts     *hosts
	watcher   watcher

	reachability reachability

	resolver atomic.Pointer[activeResolver]

	mu            sync.Mutex
	channels      map[*channel]struct{}
	stopFollowing context.CancelFunc
	followed      chan struct{} // closed when followViews has ended; nil while there is no channel

	closing sync.WaitGroup // idle channels that are being closed
}

// Resolver provides the views, and takes reports of what calls reach.
type Resolver interface {
	// View returns the view that lookups use, nil before the first, and a channel that is
	// closed when the next view takes its place.
	View() (view *catalog.View, changed <-chan struct{})
	// Credentials are those of calls to an app that the caller calls by another name: for these,
	// daprd's own want the certificate of that name.
	Credentials(app catalog.App) (credentials.TransportCredentials, error)
	// RetryCutOff reports whether a call that was cut off is made again elsewhere.
	RetryCutOff() bool
	// Failed is called, in a goroutine of its own, for each failed attempt to connect to an
	// address in the caller's own cluster or network.
	Failed(app catalog.App, address string)
	// ReportUnreached takes everything that is not reached in other clusters, on each change.
	ReportUnreached([]nameresolution.Unreached)
}

// activeResolver is the resolver in use.
type activeResolver struct {
	Resolver
	retryCutOff bool
	replaced    chan struct{} // closed when another resolver takes its place
}

// New returns a Dialer that knows no app until Use. spanFromContext finds the span of a call:
// [trace.SpanFromContext], or daprd's own function, since daprd has a context key of its own.
func New(log *slog.Logger, spanFromContext func(context.Context) trace.Span, answers Answers) *Dialer {
	registerBalancer()
	d := &Dialer{
		Tap: &traffic.Tap{}, log: log, span: spanFromContext, answers: answers, channels: map[*channel]struct{}{}, hosts: newHosts(log, lookup.Through(nil)),
	}
	d.hosts.onChange = d.refreshAll
	d.reachability.endpoints = map[*endpoint]reachState{}
	d.reachability.report = func(all []nameresolution.Unreached) { d.resolver.Load().ReportUnreached(all) }
	d.watcher.conns = map[*conn]struct{}{}
	d.remotes.byAddress = map[string]*remote{}
	return d
}

// Use makes calls follow the views of a resolver. It may be called again: daprd loads its
// components anew when its configuration changes.
func (d *Dialer) Use(r Resolver) {
	old := d.resolver.Swap(&activeResolver{r, r.RetryCutOff(), make(chan struct{})})
	if old != nil {
		close(old.replaced)
	}
}

// currentView returns nil while there is no view.
func (d *Dialer) currentView() *catalog.View {
	r := d.resolver.Load()
	if r == nil {
		return nil
	}
	view, _ := r.View()
	return view
}

// Name returns what daprd dials for an app that the view has: the app's own name. Where the caller
// calls it by another one, it is a name of both.
func (d *Dialer) Name(entry *catalog.Entry) string {
	if c, ok := entry.Memo(catalog.MemoDial).(*callee); ok && c.dialer == d {
		return c.address
	}
	c := d.callee(calleeKey{entry.App, entry.Name()})
	entry.Keep(catalog.MemoDial, c)
	return c.address
}

// calleeKey is an app, and the name by which the caller calls it.
type calleeKey struct{ app, name catalog.App }

// callee returns the app's, and makes it at the first lookup.
func (d *Dialer) callee(key calleeKey) *callee {
	if c, ok := d.callees.Load(key); ok {
		return c.(*callee)
	}
	domain := catalog.Domain(catalog.DefaultDomain)
	if view := d.currentView(); view != nil && view.Gateways != nil && view.Gateways.Domain != "" {
		domain = view.Gateways.Domain
	}
	of := func(app catalog.App) string { return app.ID + "." + app.Namespace + "." }
	made := &callee{dialer: d, calleeKey: key, conns: map[*grpc.ClientConn]*channel{}}
	if made.renamed() {
		made.address, made.counts = of(key.app)+"as."+of(key.name), d.callee(calleeKey{key.app, key.app}).counts
	} else {
		made.address, made.counts = of(key.app), &callCounts{}
	}
	made.address += string(domain) + ":" + strconv.Itoa(catalog.DefaultGatewayPort)
	found, _ := d.callees.LoadOrStore(key, made)
	c := found.(*callee)
	d.byAddress.Store(c.address, c)
	return c
}

// Close ends all connections, cuts off the calls under way, and waits for all goroutines.
func (d *Dialer) Close() {
	d.mu.Lock()
	channels := d.channels
	d.channels = map[*channel]struct{}{}
	followed := d.endFollowing()
	d.mu.Unlock()
	if followed != nil {
		<-followed
	}
	for c := range channels {
		c.close()
	}
	d.closing.Wait()
	d.hosts.close()
	d.watcher.close()
}

// acquireChannel returns an idle channel to an app, or a new one. The caller holds the lock.
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

// channelIdleTimeout is how long a channel without a handle is kept. daprd closes a connection
// when one call on it ends with Unavailable, and opens another one for the next call.
const channelIdleTimeout = 30 * time.Second

// releaseChannel keeps a channel for the next handle, for a while. The caller holds the lock.
func (d *Dialer) releaseChannel(c *channel) {
	if _, ok := d.channels[c]; !ok {
		return
	}
	c.callee.idle = append(c.callee.idle, c)
	c.idleTimer = time.AfterFunc(channelIdleTimeout, func() { d.closeIdle(c) })
}

// closeIdle closes a channel that is still idle, once it has no call under way.
func (d *Dialer) closeIdle(c *channel) {
	d.mu.Lock()
	at := slices.Index(c.callee.idle, c)
	if _, ok := d.channels[c]; !ok || at < 0 {
		d.mu.Unlock()
		return
	}
	if !c.endCalls() {
		c.idleTimer.Reset(channelIdleTimeout)
		d.mu.Unlock()
		return
	}
	c.callee.idle = slices.Delete(c.callee.idle, at, at+1)
	delete(d.channels, c)
	d.closing.Add(1)
	defer d.closing.Done()
	var followed chan struct{}
	if len(d.channels) == 0 {
		followed = d.endFollowing()
	}
	d.mu.Unlock()
	if followed != nil {
		<-followed
	}
	c.close()
}

// endFollowing stops followViews, and returns a channel that is closed when it has ended. The
// caller holds the lock.
func (d *Dialer) endFollowing() chan struct{} {
	followed := d.followed
	if followed != nil {
		d.stopFollowing()
		d.followed = nil
	}
	return followed
}

// followViews refreshes all channels on each view.
func (d *Dialer) followViews(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	for ctx.Err() == nil {
		r := d.resolver.Load()
		_, changed := r.View()
		d.refreshAll()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-r.replaced:
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
