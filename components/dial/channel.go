package dial

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"

	"github.com/isthmus-mesh/isthmus/catalog"
)

const scheme = "isthmus"

// connectTimeout is how long an attempt to connect may take, including the handshakes of TLS and
// HTTP/2.
const connectTimeout = 5 * time.Second

// channel has the connections to one app in all clusters. A caller with more than a hundred calls
// under way has several channels, as daprd has several connections.
type channel struct {
	dialer *Dialer
	callee *callee
	app    catalog.App
	conn   *grpc.ClientConn
	plain  bool                  // no TLS: a gateway routes by :authority
	asks   atomic.Pointer[asked] // what the plan asks of calls; nil for nothing
	calls  atomic.Int64          // under way, also before they have an endpoint; negative once none may begin

	idleTimer *time.Timer // belongs to Dialer.mu

	mu     sync.Mutex
	cc     resolver.ClientConn // nil before Build and after Close
	plan   *plan               // of the last refresh
	hosts  map[string]struct{} // that this channel keeps looked up
	closed bool
}

// answerWindow is how many bytes of answers may be on their way on a connection, which bounds what it
// carries at a long round trip.
const answerWindow = 16 << 20

// plainText is what credentials without TLS call it.
const plainText = "insecure"

// newChannel makes a channel with daprd's own credentials and keepalive.
func newChannel(d *Dialer, to *callee) (*channel, error) {
	creds, err := to.credentials()
	if err != nil {
		return nil, err
	}
	c := &channel{dialer: d, callee: to, app: to.app, hosts: map[string]struct{}{}, plain: creds.Info().SecurityProtocol == plainText}
	options := []grpc.DialOption{
		grpc.WithResolvers(c),
		grpc.WithTransportCredentials(&connCredentials{creds}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: connectTimeout,
		}),
		// Windows that grow by themselves, as gRPC's do, cost a ping for each answer. These are as large
		// as those get.
		grpc.WithInitialWindowSize(answerWindow), grpc.WithInitialConnWindowSize(answerWindow),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(), // gRPC compares NO_PROXY with the app's name only, not with instances
	}
	if d.Connect != nil {
		options = append(options, grpc.WithContextDialer(d.Connect))
	}
	conn, err := grpc.NewClient(scheme+":///"+to.address, options...)
	if err != nil {
		return nil, err
	}
	c.conn = conn
	c.refresh()
	conn.Connect()
	return c, nil
}

// Scheme makes the channel the resolver builder of its connection, with Build.
func (c *channel) Scheme() string { return scheme }

// Build is called by gRPC once.
func (c *channel) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cc = cc
	c.sendPlan()
	return c, nil
}

// ResolveNow is gRPC's hint that a connection failed.
func (c *channel) ResolveNow(resolver.ResolveNowOptions) {}

// Close is called by gRPC when the connection ends.
func (c *channel) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cc = nil
}

// beginCall counts a call in, until endCall. It returns false if the channel is closed.
func (c *channel) beginCall() bool { return c.calls.Add(1) > 0 }

func (c *channel) endCall() { c.calls.Add(-1) }

// endCalls makes beginCall return false from now on. It returns false if calls are under way.
func (c *channel) endCalls() bool { return c.calls.CompareAndSwap(0, math.MinInt64/2) }

func (c *channel) close() {
	_ = c.conn.Close() // its only error is that it was closed before
	c.mu.Lock()
	hosts := c.hosts
	c.hosts, c.closed = map[string]struct{}{}, true
	c.mu.Unlock()
	for host := range hosts {
		c.dialer.hosts.release(host)
	}
}

// refresh follows the current view. It costs next to nothing if the view says the same as before.
func (c *channel) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	view := c.dialer.currentView() // under the lock, so that no older view follows a newer one
	if c.closed || view == nil {
		return
	}
	changes := c.dialer.hosts.version.Load()
	entry, _ := view.Entries.Get(c.callee.name)
	if entry != nil && entry.App != c.app {
		entry = nil // the name leads to another app now, which has a channel of its own
	}
	if p := c.plan; p != nil && p.entry == entry && p.zone == view.Zone && p.gateways == view.Gateways && p.hostVersion == changes && (entry != nil || p.view == view) {
		return
	}
	p := newPlan(c, view, entry, changes, c.plan)
	if c.plan != nil && c.plan.equal(p) {
		c.plan = p
		return
	}
	c.plan = p
	c.asks.Store(p.asks())
	c.watchHosts(p)
	c.sendPlan()
}

// watchHosts keeps the hosts of the plan looked up, and no others. The caller holds the lock.
func (c *channel) watchHosts(p *plan) {
	for host := range c.hosts {
		if _, ok := p.hosts[host]; !ok {
			delete(c.hosts, host)
			c.dialer.hosts.release(host)
		}
	}
	for host := range p.hosts {
		c.hosts[host] = struct{}{}
	}
}

// planAttribute is the attribute by which the balancer gets the plan.
type planAttribute struct{}

// sendPlan gives gRPC the plan. The caller holds the lock.
func (c *channel) sendPlan() {
	if c.cc == nil || c.plan == nil {
		return
	}
	retry := c.dialer.resolver.Load().retryCutOff && c.plan.endpointCount > 1
	_ = c.cc.UpdateState(resolver.State{ // its error only asks for another lookup
		ServiceConfig: c.cc.ParseServiceConfig(serviceConfig(retry)),
		Attributes:    attributes.New(planAttribute{}, c.plan),
	})
}

// isCurrent reports whether a plan follows the current view. If not, the balancer is about to get
// another one.
func (c *channel) isCurrent(p *plan) bool {
	c.refresh()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan == p || c.plan.equal(p)
}
