package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/tunnel/mux"
)

// dialWithin is how long an attempt may take.
const dialWithin = 5 * time.Second

// Dialer keeps tunnels to the clusters that this one dials.
type Dialer struct {
	cfg     Config
	log     *throttle.Log
	streams chan *mux.Stream
	closed  chan struct{}
	close   func()
	running sync.WaitGroup // sessions

	mu    sync.Mutex
	dials map[string]*dialled
}

// dialled are the tunnels to one cluster.
type dialled struct {
	*Dialer
	cluster string
	cancel  context.CancelFunc
	done    chan struct{}
	creds   credentials.TransportCredentials
	changed chan struct{} // has room for one: look again

	mu       sync.Mutex // guards what follows
	gateways []string
	next     int // the gateway to try
	tunnels  []*outward
	since    time.Time
	err      error
	several  bool
}

// outward is one tunnel.
type outward struct {
	process string // at the other end
	id      []byte
	session *mux.Session
	info    credentials.AuthInfo // of its own handshake
	leaving bool                 // the other end ends
	left    chan struct{}        // closed once the other end opens no more
	once    sync.Once
}

// NewDialer makes a Dialer without tunnels.
func NewDialer(cfg Config) *Dialer {
	d := &Dialer{
		cfg: cfg.withProcess(), log: throttle.New(cfg.Log, throttle.Interval), streams: make(chan *mux.Stream, backlog), closed: make(chan struct{}), dials: map[string]*dialled{},
	}
	d.close = sync.OnceFunc(func() { close(d.closed) })
	return d
}

// Run keeps the tunnels until ctx ends. Those that are open stay: see Leave and End.
func (d *Dialer) Run(ctx context.Context, clusters *live.Value[[]*catalog.Cluster]) error {
	if err := d.cfg.Identity.Wait(ctx); err != nil {
		return nil // ctx has ended
	}
	for ctx.Err() == nil {
		all, _, changed := clusters.Follow()
		d.follow(ctx, all)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	for _, k := range d.all() {
		<-k.done
	}
	return nil
}

func (d *Dialer) all() (all []*dialled) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.dials {
		all = append(all, k)
	}
	return all
}

// follow makes the tunnels match the Cluster objects. Of one that has changed, the tunnels stay;
// those that the trust allows no more end by themselves.
func (d *Dialer) follow(ctx context.Context, clusters []*catalog.Cluster) {
	wanted := map[string]*catalog.Cluster{}
	for _, c := range clusters {
		if c.Tunnel == catalog.TunnelDial && c.Name != d.cfg.Cluster {
			wanted[c.Name] = c
		}
	}
	for _, k := range d.all() {
		if c := wanted[k.cluster]; c != nil {
			delete(wanted, k.cluster)
			k.setGateways(c.Gateways)
			continue
		}
		k.cancel()
		<-k.done
		k.eachTunnel(func(t *outward) { t.session.Close() })
		d.mu.Lock()
		delete(d.dials, k.cluster)
		d.mu.Unlock()
	}
	for _, c := range wanted {
		d.begin(ctx, c)
	}
}

func (d *Dialer) begin(ctx context.Context, c *catalog.Cluster) {
	ctx, cancel := context.WithCancel(ctx)
	k := &dialled{
		Dialer: d, cluster: c.Name, gateways: c.Gateways, cancel: cancel, done: make(chan struct{}),
		creds: d.cfg.Identity.TunnelCredentials(c.Name), since: time.Now(), changed: make(chan struct{}, 1),
	}
	d.mu.Lock()
	d.dials[c.Name] = k
	d.mu.Unlock()
	go func() {
		defer close(k.done)
		k.run(ctx)
	}()
}

func (k *dialled) setGateways(gateways []string) {
	k.mu.Lock()
	k.gateways = gateways
	k.mu.Unlock()
	k.wake() // the trust may be another
}

func (k *dialled) eachTunnel(do func(*outward)) {
	k.mu.Lock()
	all := slices.Clone(k.tunnels)
	k.mu.Unlock()
	for _, t := range all {
		do(t)
	}
}

// has are the processes that have a tunnel which stays.
func (k *dialled) has() (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.tunnels {
		if !t.leaving {
			all = append(all, t.process)
		}
	}
	return all
}

// errHas says that an attempt led to a process that has a tunnel already.
var errHas = errors.New("this replica has a tunnel already")

// refusal is the other end's.
type refusal struct{ error }

// run keeps a tunnel to each replica until ctx ends.
func (k *dialled) run(ctx context.Context) {
	p := &pacing{}
	for ctx.Err() == nil {
		had := k.has()
		k.mu.Lock()
		several, full := k.several, len(k.tunnels) >= maxTunnels
		k.mu.Unlock()
		if len(had) > 0 && !several || full {
			select {
			case <-k.changed:
			case <-ctx.Done():
			}
			continue
		}
		if !p.wait(ctx, k.changed, len(had)) {
			return
		}
		p.err = k.attempt(ctx, had)
		k.failed(ctx, p.err)
	}
}

// failed notes why an attempt failed.
func (k *dialled) failed(ctx context.Context, err error) {
	if err == nil || errors.Is(err, errHas) || ctx.Err() != nil {
		return
	}
	err = remedied(err)
	k.mu.Lock()
	k.err = err
	k.mu.Unlock()
	k.log.Warn("failed "+k.cluster, "no tunnel to a cluster that is dialled; retrying", "peer", k.cluster, "err", err)
}

// remedied adds to an alert of TLS what it means here.
func remedied(err error) error {
	for alert, means := range map[string]string{
		"unrecognized name": "its gateway takes no tunnels: its service is older than this one, or has no identity, or the domain is another",
		"bad certificate":   "it refuses the certificate of this cluster's service: see its log, and spec.trust of its Cluster object of this one",
		"internal error":    "its gateway has just begun",
		"unknown authority": "it does not trust this cluster's root: add it to spec.trust.roots there",
	} {
		if strings.Contains(err.Error(), "tls: "+alert) {
			return fmt.Errorf("%w; %s", err, means)
		}
	}
	return err
}

// attempt makes a tunnel by the next gateway.
func (k *dialled) attempt(ctx context.Context, has []string) error {
	conn, info, welcome, err := k.greet(ctx, &v1alpha1.TunnelHello{Process: k.cfg.process, Has: has})
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.several = welcome.GetSeveral()
	k.mu.Unlock()
	if len(welcome.GetId()) == 0 {
		conn.Close()
		return errHas
	}
	t := &outward{process: welcome.GetProcess(), id: welcome.GetId(), info: info, left: make(chan struct{})}
	t.session = k.cfg.session(conn, func(note []byte) { k.noted(t, note) }, k.take)
	k.mu.Lock()
	if len(k.tunnels) == 0 {
		k.since = time.Now()
	}
	k.tunnels, k.err = append(k.tunnels, t), nil
	k.mu.Unlock()
	k.log.Info("open "+k.cluster, "tunnel to a cluster is open", "peer", k.cluster, "gateway", conn.RemoteAddr())
	k.running.Go(func() { k.serve(t) })
	return nil
}

// greet dials the next gateway and says hello.
func (k *dialled) greet(ctx context.Context, hello *v1alpha1.TunnelHello) (net.Conn, credentials.AuthInfo, *v1alpha1.TunnelWelcome, error) {
	k.mu.Lock()
	gateway := k.gateways[k.next%len(k.gateways)]
	k.next++
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	raw, err := k.dial(ctx, gateway)
	if err != nil {
		return nil, nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, info, err := k.creds.ClientHandshake(ctx, k.cfg.Domain.TunnelHost(k.cluster), raw)
	if err != nil {
		raw.Close()
		return nil, nil, nil, fmt.Errorf("%s: %w", gateway, err)
	}
	welcome := &v1alpha1.TunnelWelcome{}
	if err = write(conn, hello); err == nil {
		err = read(conn, welcome)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", gateway, err)
	case welcome.GetRefused() != "":
		err = refusal{printable(welcome.GetRefused())}
	case !stop():
		err = fmt.Errorf("%s: %w", gateway, context.Cause(ctx))
	}
	if err != nil {
		conn.Close()
		return nil, nil, nil, err
	}
	return conn, info, welcome, nil
}

func (k *dialled) dial(ctx context.Context, gateway string) (net.Conn, error) {
	if k.cfg.Dial != nil {
		return k.cfg.Dial(ctx, gateway)
	}
	d := net.Dialer{}
	if k.cfg.Resolver != nil {
		d.Resolver = k.cfg.Resolver()
	}
	return d.DialContext(ctx, "tcp", gateway)
}

// take hands a stream to the gateway.
func (k *dialled) take(s *mux.Stream) {
	select {
	case k.streams <- s:
	default:
		s.Reset()
	}
}

// serve runs a tunnel until it ends.
func (k *dialled) serve(t *outward) {
	ctx, cancel := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	renewing.Go(func() { k.renew(ctx, t) })
	err := t.session.Run()
	cancel()
	renewing.Wait()
	t.once.Do(func() { close(t.left) })
	k.mu.Lock()
	k.tunnels = slices.DeleteFunc(k.tunnels, func(o *outward) bool { return o == t })
	if len(k.tunnels) == 0 {
		k.since, k.err = time.Now(), err
	}
	k.mu.Unlock()
	k.wake()
	k.log.Info("ended "+k.cluster, "tunnel to a cluster ended", "peer", k.cluster, "err", err)
}

func (k *dialled) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// noted takes in a note of the other end.
func (k *dialled) noted(t *outward, note []byte) {
	m := told(note)
	if m.GetLeft() {
		t.once.Do(func() { close(t.left) })
	}
	if m.GetLeaving() {
		k.mu.Lock()
		t.leaving = true
		k.mu.Unlock()
		k.wake()
	}
}

// renew shows newer certificates for a tunnel, and sees those of the other end, for as long as it runs.
func (k *dialled) renew(ctx context.Context, t *outward) {
	newest, failures := t.info, 0
	for {
		if failures == 0 && k.cfg.Identity.Renewal(grpcpeer.NewContext(ctx, &grpcpeer.Peer{AuthInfo: newest})) != nil {
			return // ctx has ended
		}
		if info, ok := k.renewed(ctx, t); ok {
			newest, failures = info, 0
			continue
		}
		if !live.Sleep(ctx, live.Jitter(live.Backoff(firstPause, probePause, failures))) {
			return
		}
		failures++
	}
}

// renewed is one attempt, which may lead to another replica.
func (k *dialled) renewed(ctx context.Context, t *outward) (credentials.AuthInfo, bool) {
	conn, info, welcome, err := k.greet(ctx, &v1alpha1.TunnelHello{Process: k.cfg.process, Renews: t.id})
	if err != nil {
		k.failed(ctx, err)
		return nil, false
	}
	defer conn.Close()
	return info, welcome.GetProcess() == t.process && k.cfg.Identity.Prolong(t.info, info)
}

// Leave has the other ends open no more streams, and returns once they know.
func (d *Dialer) Leave() {
	within := time.After(leaveWithin)
	for _, k := range d.all() {
		k.eachTunnel(func(t *outward) { go tell(t.session, &v1alpha1.TunnelWelcome{Leaving: true}) })
	}
	for _, k := range d.all() {
		k.eachTunnel(func(t *outward) {
			select {
			case <-t.left:
			case <-within:
			}
		})
	}
	d.close()
}

// End ends every tunnel. Call it when Run has ended.
func (d *Dialer) End() {
	d.close()
	for _, k := range d.all() {
		k.eachTunnel(func(t *outward) { t.session.Close() })
	}
	d.running.Wait()
}

// Accept returns the next stream: the Dialer is a [net.Listener] for the gateway.
func (d *Dialer) Accept() (net.Conn, error) {
	select {
	case s := <-d.streams:
		return s, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (d *Dialer) Close() error {
	d.close()
	return nil
}

// Addr is none.
func (d *Dialer) Addr() net.Addr { return &net.TCPAddr{} }

// AddStatus adds the tunnels to the states of peers.
func (d *Dialer) AddStatus(peers []*v1alpha1.PeerStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range peers {
		k := d.dials[p.GetCluster()]
		if k == nil {
			continue
		}
		k.mu.Lock()
		p.Tunnel = &v1alpha1.TunnelStatus{Mode: catalog.TunnelDial, Open: uint32(len(k.tunnels)), SinceUnixMs: k.since.UnixMilli()}
		for _, t := range k.tunnels {
			p.Tunnel.Streams += uint32(t.session.Streams())
		}
		if len(k.tunnels) == 0 && k.err != nil {
			p.Tunnel.Error = k.err.Error()
		}
		k.mu.Unlock()
	}
}
