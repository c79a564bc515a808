package simulation

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/dial"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// sidecar stands for the sidecars of an app in a cluster. It is what daprd has of Isthmus: the resolver
// that follows the app's view and tells the guard who may call, and the dialer that makes calls.
type sidecar struct {
	cluster  *cluster
	app      catalog.App
	host     string
	clock    *clock
	resolver *nameresolution.Resolver
	dialer   *dial.Dialer
	end      context.CancelFunc
	running  sync.WaitGroup // its identity
	calling  context.Context
	noCalls  context.CancelFunc
	calls    sync.WaitGroup

	// The fields below belong to the world's goroutine.
	at        *replica
	late      bool          // its connections are held up
	heard     time.Time     // since when the service has been heard without a gap; zero while it is not
	known     []knew        // what that service knew meanwhile, oldest first
	offered   *catalog.View // by the service
	offeredAt time.Time
	compared  [2]*catalog.View // last

	dialing sync.Mutex                  // never taken under mu, since gRPC may ask for the view meanwhile
	conns   map[string]*grpc.ClientConn // daprd's

	mu    sync.Mutex
	to    string // host of at
	views []given
	floor int // the oldest version of the cluster's objects that it may still go by
}

// given is a view, and from when calls went by it.
type given struct {
	at   time.Time
	view *catalog.View
}

// knew is the version of the objects that a service knew at a time.
type knew struct {
	at      time.Time
	version int
}

// followWithin is how long after a service has known something its sidecars go by it.
const followWithin = time.Second

// resolverPort is where services serve sidecars.
const resolverPort = "7400"

// start starts it. Its instances are the cluster's pods.
func (d *sidecar) start() { d.clock.do(d.run) }

func (d *sidecar) run() {
	w := d.cluster.world
	id, err := newIdentity(d.cluster.name, d.app)
	if err != nil {
		w.fail("identity of %s: %v", d.host, err)
		return
	}
	var ctx context.Context
	ctx, d.end = context.WithCancel(context.Background())
	d.calling, d.noCalls = context.WithCancel(ctx)
	d.running.Go(func() { _ = id.Run(ctx) }) // returns nil
	d.to, d.conns = d.at.host, map[string]*grpc.ClientConn{}
	d.dialer = dial.New(discardLog, trace.SpanFromContext, func(any) (int32, bool) { return 0, false })
	d.dialer.Connect = d.connect
	r := nameresolution.New(nameresolution.Options{
		Logger: discardLog, Identity: id, Dial: d.dialService, Made: d.dialer.Made,
		Health: func(ctx context.Context, _ func(error)) { <-ctx.Done() }, // the cluster's source has its instances
	})
	err = r.Init(ctx, map[string]any{
		"resolver": "10.200.0.1:" + resolverPort, "cluster": d.cluster.name, "guard": "enforce", "lastGood": d.lastGood(),
	},
		nameresolution.Instance{App: d.app, Address: "10.201.0.1", Port: 50002})
	if err != nil {
		w.fail("%s: %v", d.host, err)
	}
	d.mu.Lock()
	d.resolver = r
	d.mu.Unlock()
	d.dialer.Use(&follower{r, d})
}

// stop ends it, and cuts off its calls.
func (d *sidecar) stop() {
	if d.resolver != nil {
		d.clock.do(d.close)
	}
}

func (d *sidecar) close() {
	d.noCalls()
	d.calls.Wait()
	for _, conn := range d.conns {
		_ = conn.Close()
	}
	d.dialer.Close()
	if err := d.resolver.Close(); err != nil {
		d.cluster.world.fail("%s: close: %v", d.host, err)
	}
	d.end()
	d.running.Wait()
}

func (d *sidecar) lastGood() string {
	return filepath.Join(d.cluster.world.disk, strings.ReplaceAll(d.host, "/", "-"))
}

// restart starts it anew, with its last good view if its disk stays.
func (d *sidecar) restart(disk bool) {
	d.stop()
	if !disk {
		_ = os.Remove(d.lastGood()) // it may not be there yet
	}
	d.late, d.heard, d.known, d.offered, d.compared = false, time.Time{}, nil, nil, [2]*catalog.View{}
	d.mu.Lock()
	d.views, d.floor = nil, 0
	d.mu.Unlock()
	d.start()
}

// dialService connects to the replica that its address leads to now.
func (d *sidecar) dialService(ctx context.Context, _ string) (net.Conn, error) {
	d.mu.Lock()
	to := d.to
	d.mu.Unlock()
	return d.cluster.world.net.Host(d.host).Dial(ctx, to+":"+resolverPort)
}

// connect connects to a gateway or a pod.
func (d *sidecar) connect(ctx context.Context, address string) (net.Conn, error) {
	w := d.cluster.world
	if g := w.gatewayAt(address); g != nil {
		return w.net.Host(d.host).Dial(ctx, g.host+":"+callsPort)
	}
	if in := w.networkAt(address); in != "" && in != d.cluster.network {
		w.fail("address: %s calls %s, which is in network %s", d.host, address, in)
	}
	return w.net.Host(d.host).Dial(ctx, address)
}

// move has another replica serve it.
func (d *sidecar) move(to *replica) {
	d.mu.Lock()
	was := d.to
	d.at, d.to = to, to.host
	d.mu.Unlock()
	d.heard, d.known = time.Time{}, nil
	d.cluster.world.net.Reset(d.host, was)
}

// away tells whether it says that it does not hear its service.
func (d *sidecar) away() (away bool) {
	d.clock.do(func() { away = d.resolver.Away() > 0 })
	return away
}

// held is the view that calls go by; nil before the first.
func (d *sidecar) held() *catalog.View {
	view, _ := d.resolver.View()
	return view
}

// follower is the resolver as the dialer sees it. It notes the views.
type follower struct {
	*nameresolution.Resolver
	sidecar *sidecar
}

// View notes the view: no call goes by one that was not given here.
func (f *follower) View() (*catalog.View, <-chan struct{}) {
	view, changed := f.Resolver.View()
	f.sidecar.note(view)
	return view, changed
}

func (d *sidecar) note(view *catalog.View) {
	if view == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.views); n == 0 || d.views[n-1].view != view {
		d.views = append(d.views, given{now(), view})
	}
}

// look notes what it surely knows, and checks that it goes by what its service knows.
func (d *sidecar) look() {
	w, s := d.cluster.world, d.at.service
	if s == nil || d.late || d.away() || !s.isSettled() || !s.feed.Status().Synced {
		d.heard, d.known = time.Time{}, nil
		return
	}
	now := time.Now()
	if d.heard.IsZero() {
		d.heard = now
	}
	if v := s.version(); len(d.known) == 0 || d.known[len(d.known)-1].version != v {
		d.known = append(d.known, knew{now, v})
	}
	for len(d.known) > 1 && now.Sub(d.known[1].at) > followWithin {
		d.known = d.known[1:]
	}
	if now.Sub(d.known[0].at) > followWithin {
		d.mu.Lock()
		d.floor = min(max(d.floor, d.known[0].version), d.cluster.back)
		d.mu.Unlock()
	}
	view, ok := look(s, d.app)
	if !ok {
		return
	}
	if view != d.offered {
		d.offered, d.offeredAt = view, now
	}
	held := d.held()
	if now.Sub(d.heard) <= followWithin || now.Sub(d.offeredAt) <= followWithin || d.compared == [2]*catalog.View{held, view} {
		return
	}
	d.compared = [2]*catalog.View{held, view}
	switch {
	case held == nil:
		w.fail("follow: %s has no view, and its service has had one for %s", d.host, followWithin)
	case view.Revision < held.Revision:
		w.fail("revision: %s holds revision %d of its view, and its service is at %d", d.host, held.Revision, view.Revision)
	default:
		if wrong := sameView(held, view); wrong != "" {
			w.fail("follow: %s does not go by the view that its service has had for %s: %s", d.host, followWithin, wrong)
		}
	}
}

// sameView describes a difference between views; empty if there is none.
func sameView(a, b *catalog.View) string {
	if a.Open != b.Open {
		return "one is of an app without a selection"
	}
	for edit := range a.Entries.Diff(&b.Entries, func(a, b *catalog.Entry) bool { return same(a, b, true) }) {
		other, _ := b.Entries.Get(edit.App)
		return fmt.Sprintf("the entry for %s is %s, and %s", edit.App, told(edit.Value), told(other))
	}
	if !a.Gateways.Equal(b.Gateways) {
		return fmt.Sprintf("the gateways are %v, and %v", a.Gateways, b.Gateways)
	}
	return ""
}

// conn is the connection that daprd dials for a name; new after one was closed.
func (d *sidecar) conn(name string) (*grpc.ClientConn, error) {
	d.dialing.Lock()
	defer d.dialing.Unlock()
	if c := d.conns[name]; c != nil {
		return c, nil
	}
	options := append(d.dialer.DialOptions(),
		grpc.WithTransportCredentials(&mtls{self: caller{d.cluster.name, d.app}, want: strings.SplitN(name, ".", 2)[0]}),
		grpc.WithResolvers(d.dialer.Wrap(resolver.Get("passthrough"))))
	c, err := grpc.NewClient("passthrough:///"+name, options...)
	if err == nil {
		d.conns[name] = c
		c.Connect()
	}
	return c, err
}

// closeConn closes it, as daprd does after an answer of Unavailable.
func (d *sidecar) closeConn(name string, c *grpc.ClientConn) {
	d.dialing.Lock()
	if d.conns[name] == c {
		delete(d.conns, name)
	}
	d.dialing.Unlock()
	_ = c.Close()
}

// newIdentity is an app's own certificate, which lasts for all of the simulation.
func newIdentity(cluster string, app catalog.App) (*identity.Source, error) {
	signed, err := authority().issue(domainOf(cluster), app)
	if err != nil {
		return nil, err
	}
	return identity.New(identity.Config{Sentry: &identity.Sentry{
		Address: "sentry:50001", TrustAnchors: authority().pem, AppTrustDomain: domainOf(cluster), First: signed,
	}}, app, discardLog)
}

func domainOf(cluster string) string { return cluster + ".test" }
