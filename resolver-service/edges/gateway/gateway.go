// Package gateway is the ingress of a cluster for other clusters.
//
// It reads the first bytes of a connection, finds the exported app that they
// name (the SNI of a TLS ClientHello or, in development, the :authority of a
// plain HTTP/2 request), and passes the connection, bytes untouched, to a ready
// instance of it. It ends no TLS and holds no key: who may call whom is settled
// by the two sidecars' own mTLS.
//
// One connection's way through the package: [Gateway.Serve] accepts, greeting.go
// reads, route.go chooses, dial.go connects, and a [relay.Relay] passes bytes until both
// directions have ended.
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// Config is what a gateway needs. Table and Logger must be set; every zero
// duration or number stands for the default named beside it.
type Config struct {
	// Table is read once for each connection. Connections that run are left
	// alone when it changes.
	Table  *live.Value[*catalog.GatewayTable]
	Logger *slog.Logger
	// Metrics is where the gateway registers its metrics; nil: nowhere.
	Metrics prometheus.Registerer

	// Plaintext lets HTTP/2 without TLS in, routed by the :authority of the first
	// request of a connection. For development: nothing is encrypted or checked.
	Plaintext bool
	// Peers takes over the TLS connections of other clusters' resolver services, which ask
	// for the reserved name (see [catalog.Domain.PeerHost]); nil: nobody may ask for that. It
	// gets the connection with every byte that the client sent, and closes it.
	Peers func(net.Conn)
	// Link takes over the TLS connections that ask for [catalog.Domain.LinkHost] of this cluster,
	// like Peers, while Linking says so; nil: nobody may ask for that.
	Link    func(net.Conn)
	Linking func() bool
	// Tunnels takes over the TLS connections of clusters that are called over them, which ask for
	// [catalog.Domain.TunnelHost] of this cluster; nil: nobody may ask for that.
	Tunnels func(net.Conn)
	// OpenTunnel opens a stream to such a cluster's gateway, or waits for one until ctx ends.
	OpenTunnel func(ctx context.Context, cluster string) (relay.Conn, error)
	// Check is asked for each address right before the gateway connects to it as an instance
	// of an app; after an error it does not. nil allows all. Any goroutine calls it.
	Check func(netip.AddrPort) error

	// HelloTimeout is from accepting a connection to knowing its name: 5 s, in which a
	// packet may be lost twice.
	HelloTimeout time.Duration
	DialTimeout  time.Duration // for one instance; all tries together get three times that: 2 s
	DrainTimeout time.Duration // for connections that run when Serve is told to end: 15 s
	// StallTimeout ends a connection with bytes that its receiver has not taken
	// for so long: 5 min. A connection on which nothing is sent has no time limit.
	StallTimeout time.Duration
	// AnswerTimeout ends a connection on which the instance has not sent a byte for so long
	// after it was connected to: 10 s.
	AnswerTimeout time.Duration

	// MaxConnections to apps are open at once, with two descriptors each: 50,000. Those to the resolver service have a bound of their own.
	MaxConnections int
	// MaxPerSource of them are from one IPv4 address or one /64 of IPv6, and half as many
	// again from one /24 or /48: half of MaxConnections, since all callers of a cluster may
	// come from one address. The same part of MaxHellos is a source network's.
	MaxPerSource int
	// MaxPeers connections to the resolver service are open at once: [DefaultMaxPeers]. A source
	// may have a sixteenth of them, and 8 at least. See [Descriptors].
	MaxPeers int
	// MaxHellos connections have yet to name an app; beyond it the oldest such goes: 4,096, or
	// half of MaxConnections, so that they leave room for those that have.
	MaxHellos int
}

func (c Config) withDefaults() Config {
	c.HelloTimeout = cmp.Or(c.HelloTimeout, 5*time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, 2*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 15*time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, 5*time.Minute)
	c.AnswerTimeout = cmp.Or(c.AnswerTimeout, 10*time.Second)
	c.MaxConnections = cmp.Or(c.MaxConnections, 50_000)
	c.MaxPerSource = cmp.Or(c.MaxPerSource, c.MaxConnections/2, 1)
	c.MaxPeers = cmp.Or(c.MaxPeers, DefaultMaxPeers)
	c.MaxHellos = cmp.Or(c.MaxHellos, min(4096, max(c.MaxConnections/2, 1)))
	return c
}

// Gateway passes connections from other clusters to this cluster's exported apps.
type Gateway struct {
	cfg     Config
	metrics *metrics
	refused *refusals
	loads   *loads
	exports *trafficByExport
	// tunnelled is the traffic to clusters that dial this one.
	tunnelled exportTraffic
	shares    *shares
	inflight  *inflight
	id        gatewayID
	hello     *tls.Config // makes crypto/tls stop once it has read a ClientHello
	newRelay  func(relay.Config) (relay.Relay, error)

	running atomic.Int64 // connections that are open, but for those of peers
	drained atomic.Pointer[time.Time]
}

// New makes a gateway; it starts nothing. It fails when the configuration is
// incomplete or its metrics are registered already.
func New(cfg Config) (*Gateway, error) {
	if cfg.Table == nil || cfg.Logger == nil {
		return nil, errors.New("gateway: Config.Table and Config.Logger must be set")
	}
	cfg = cfg.withDefaults()
	exports := newTrafficByExport(cfg.Table)
	g := &Gateway{
		cfg:      cfg,
		loads:    newLoads(),
		exports:  exports,
		shares:   newShares(&cfg),
		inflight: newInflight(),
		hello:    &tls.Config{GetConfigForClient: stopAtHello},
		newRelay: relay.New,
	}
	rand.Read(g.id[:])
	var err error
	if g.metrics, err = newMetrics(&g.cfg, exports, &g.tunnelled); err != nil {
		return nil, err
	}
	g.refused = newRefusals(cfg.Logger, g.metrics)
	return g, nil
}

// Serve takes a listener of TCP connections, or of streams that can be closed in one direction,
// over and accepts connections from it until ctx ends. Then it closes
// the listener, lets connections finish for at most Config.DrainTimeout, closes the rest and
// returns nil. It returns an error when the listener fails for good, which closes all connections;
// running out of descriptors is not for good.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	return g.serve(ctx, l, catalog.App{})
}

// ServeApp is [Gateway.Serve] for a listener that leads to one app, if that is exported,
// and to nothing else: for callers that dial an address and so name nobody. Those that
// name the app are served too.
func (g *Gateway) ServeApp(ctx context.Context, l net.Listener, app catalog.App) error {
	return g.serve(ctx, l, app)
}

func (g *Gateway) serve(ctx context.Context, l net.Listener, only catalog.App) error {
	_, tcp := l.(*net.TCPListener)
	s, err := g.newServing(only, tcp)
	if err != nil {
		l.Close()
		return err
	}
	withdrawals, end := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { s.endWithdrawn(withdrawals) })
	defer watch.Wait()
	defer end()
	err = s.acceptFrom(ctx, l)
	if err != nil {
		s.drain(0)
		return err
	}
	s.drain(g.drainTime())
	return nil
}

// BeginDrain has Config.DrainTimeout count from now, and not from the end of Serve, and returns
// when it is over.
func (g *Gateway) BeginDrain() time.Time {
	by := time.Now().Add(g.cfg.DrainTimeout)
	g.drained.Store(&by)
	return by
}

func (g *Gateway) drainTime() time.Duration {
	if at := g.drained.Load(); at != nil {
		return max(0, time.Until(*at))
	}
	return g.cfg.DrainTimeout
}

// Loops is how many processors of Go's runtime a gateway that is served keeps from other
// goroutines; see [relay.Loops].
func Loops() int { return relay.Loops() }

// Idle tells whether no connection runs, but for those of other clusters' resolver services.
func (g *Gateway) Idle() bool { return g.running.Load() == 0 }
