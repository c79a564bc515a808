package dial

import (
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

// connectFor is how long an attempt to connect may take, the handshakes of TLS and HTTP/2
// included.
const connectTimeout = 5 * time.Second

// channel is the connections to one app, wherever the app is. A caller with more than a
// hundred calls under way has several, as daprd does by itself.
type channel struct {
	dialer *Dialer
	callee *callee
	app    catalog.App
	conn   *grpc.ClientConn
	plain  bool         // no TLS: a gateway routes by :authority
	calls  atomic.Int64 // under way

	idleTimer *time.Timer // of Names.mu

	mu     sync.Mutex
	cc     resolver.ClientConn // nil before gRPC asks for it, and after it ended
	plan   *plan               // of the last look
	hosts  map[string]struct{} // whose lookups are followed
	closed bool
}

// newChannel makes a channel with daprd's own credentials and keepalive.
func newChannel(n *Dialer, to *callee) (*channel, error) {
	c := &channel{dialer: n, callee: to, app: to.app, hosts: map[string]struct{}{}, plain: to.creds.Info().SecurityProtocol == "insecure"}
	conn, err := grpc.NewClient(scheme+":///"+to.address,
		grpc.WithResolvers(c),
		grpc.WithTransportCredentials(&connCredentials{to.creds.Clone()}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(), // NO_PROXY can't name instances: gRPC asks once, for our name of the app
	)
	if err != nil {
		return nil, err
	}
	c.conn = conn
	c.refresh()
	conn.Connect()
	return c, nil
}

// Scheme and Build make the channel its connection's resolver.
func (c *channel) Scheme() string { return scheme }

// Build is called once, when the connection begins.
func (c *channel) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cc = cc
	c.sendPlan()
	return c, nil
}

// ResolveNow is gRPC's hint that a connection failed.
func (c *channel) ResolveNow(resolver.ResolveNowOptions) {}

// Close is called when the connection ends.
func (c *channel) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cc = nil
}

func (c *channel) close() {
	_ = c.conn.Close() // it only says that it was closed before
	c.mu.Lock()
	hosts := c.hosts
	c.hosts, c.closed = map[string]struct{}{}, true
	c.mu.Unlock()
	for host := range hosts {
		c.dialer.hosts.release(host)
	}
}

// look takes in what the view says of the app by now. It costs next to nothing where that
// is what it said before.
func (c *channel) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	view := c.dialer.currentView() // under the lock, lest an older one is looked at after a newer
	if c.closed || view == nil {
		return
	}
	changes := c.dialer.hosts.version.Load()
	entry, _ := view.Entries.Get(c.app)
	if p := c.plan; p != nil && p.entry == entry && p.zone == view.Zone && p.gateways == view.Gateways && p.hostVersion == changes && (entry != nil || p.view == view) {
		return
	}
	p := newPlan(c, view, entry, changes, c.plan)
	if c.plan != nil && c.plan.equal(p) {
		c.plan = p
		return
	}
	c.plan = p
	c.watchHosts(p)
	c.sendPlan()
}

// follow keeps the hosts of a plan looked up, and no others. It wants the lock.
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

// planKey is the attribute by which the policy is told a plan.
type planAttribute struct{}

// tell gives gRPC the plan. It wants the lock.
func (c *channel) sendPlan() {
	if c.cc == nil || c.plan == nil {
		return
	}
	retry := c.dialer.resolver.Load().retryCutOff && c.plan.endpointCount > 1
	_ = c.cc.UpdateState(resolver.State{ // what gRPC answers is advice to look up again
		ServiceConfig: c.cc.ParseServiceConfig(serviceConfig(retry)),
		Attributes:    attributes.New(planAttribute{}, c.plan),
	})
}

// current tells whether a plan is that of the view of now. Where it is not, another is on
// its way to the policy.
func (c *channel) isCurrent(p *plan) bool {
	c.refresh()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan == p || c.plan.equal(p)
}
