package actors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	placementv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/placement/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// placement tells Dapr's placement service which types the bridge hosts, as a sidecar does, and learns
// who hosts the others.
type placement struct {
	bridge *Bridge
	self   string // host:port of the bridge

	table   live.Value[*table]
	problem live.Value[error] // why it is not connected; nil: it is
	leaving chan struct{}     // closed when the bridge is about to end: it hosts nothing any more
	gone    chan struct{}     // closed once others know that

	mu    sync.Mutex
	conns map[hostKey]*hostConn
}

// hostConn is a connection to a host.
type hostConn struct {
	*grpc.ClientConn
	calls int  // under way
	gone  bool // the host is in no table any more; the last call closes the connection
}

// hostKey is a sidecar that hosts actors.
type hostKey struct{ address, app string }

func newPlacement(b *Bridge, self string) *placement {
	return &placement{bridge: b, self: self, leaving: make(chan struct{}), gone: make(chan struct{}), conns: map[hostKey]*hostConn{}}
}

// firstStream has to last for the next failure to be the first one again.
const firstStream = 5 * time.Second

// run follows the placement service until ctx ends. Until it is back, the last table stands.
func (p *placement) run(ctx context.Context) {
	defer p.forget(nil)
	if p.bridge.identity.Wait(ctx) != nil {
		return // ctx has ended
	}
	for turn, failures := 0, 0; ctx.Err() == nil; turn, failures = turn+1, failures+1 {
		start := time.Now()
		err := p.stream(ctx, turn)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > firstStream {
			failures = 0
		}
		p.problem.Store(err)
		p.bridge.often.Warn("placement", "lost the placement service, or it is another replica's turn; going by its last table, reconnecting", "placement", p.bridge.cfg.Placement, "err", err)
		live.Sleep(ctx, live.Jitter(live.Backoff(firstRetry, lastRetry, failures)))
	}
}

// maxTable is the longest table that is read, in bytes.
const maxTable = 64 << 20

// stream follows one stream until it ends. One replica of the placement service leads; the others
// refuse.
func (p *placement) stream(ctx context.Context, turn int) error {
	conn, err := p.bridge.replica(ctx, p.bridge.cfg.Placement, turn, maxTable, p.bridge.cfg.Identity.Placement())
	if err != nil {
		return fmt.Errorf("placement: %w; write its host:port", err)
	}
	defer conn.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := placementv1.NewPlacementClient(conn).ReportDaprStatus(ctx)
	if err != nil {
		return err
	}
	_, told := p.table.Load()
	var hosts []string // until it is known what others host
	if told {
		hosts = p.wanted()
	}
	if err := stream.Send(p.host(hosts)); err != nil {
		return recvError(stream, err)
	}
	orders, failed := make(chan *placementv1.PlacementOrder), make(chan error, 1)
	go func() {
		for {
			order, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case orders <- order:
			case <-ctx.Done():
				return
			}
		}
	}()
	renewal := make(chan error, 1)
	go func() { renewal <- p.bridge.identity.Renewal(stream.Context()) }()
	leaving, settled := p.leaving, false // settled: all sidecars have the table
	for {
		_, _, viewChanged := p.bridge.view.Follow()
		want := p.wanted()
		if told && !slices.Equal(want, hosts) {
			p.bridge.log.Info("the types of actors to bridge have changed", "from", hosts, "to", want)
			hosts = want
			if err := stream.Send(p.host(hosts)); err != nil {
				return recvError(stream, err)
			}
		}
		if table, _ := p.table.Load(); leaving == nil && settled && !table.has(p.self) && !closed(p.gone) {
			close(p.gone)
		}
		select {
		case order := <-orders:
			if err := p.obey(stream, order); err != nil {
				return err
			}
			_, told = p.table.Load()
			settled = order.GetOperation() == "unlock"
		case err := <-failed:
			return err
		case err := <-renewal:
			if err == nil {
				err = errors.New("the certificate is renewed")
			}
			return err
		case <-viewChanged:
		case <-leaving:
			leaving = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recvError is why a stream can't be sent on.
func recvError(stream placementv1.Placement_ReportDaprStatusClient, sent error) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return errors.Join(err, sent)
		}
	}
}

// host is what the placement service is told: the bridge hosts these types.
func (p *placement) host(types []string) *placementv1.Host {
	return &placementv1.Host{
		Name: p.self, Id: p.bridge.cfg.App().ID, Namespace: p.bridge.cfg.Namespace, Entities: types, ApiLevel: apiLevel, Operation: placementv1.HostOperation_REPORT,
	}
}

// apiLevel is that of sidecars of Dapr 1.18.
const apiLevel = 20

// obey takes a step of a change, and answers it: the placement service waits for all sidecars.
func (p *placement) obey(stream placementv1.Placement_ReportDaprStatusClient, order *placementv1.PlacementOrder) error {
	answer := &placementv1.Host{Id: p.bridge.cfg.App().ID, Namespace: p.bridge.cfg.Namespace, Version: &order.Version}
	switch order.GetOperation() {
	case "lock": // the hosts themselves take turns
		answer.Operation = placementv1.HostOperation_LOCK
	case "update":
		answer.Operation = placementv1.HostOperation_UPDATE
		next := newTable(order.GetTables())
		p.table.Store(next)
		p.forget(next)
		if last, known := p.problem.Load(); !known || last != nil {
			p.problem.Store(nil)
		}
	case "unlock":
		answer.Operation = placementv1.HostOperation_UNLOCK
	default:
		return fmt.Errorf("the placement service orders %q, which is not of Dapr 1.18; see docs/how-to/actors.md", order.GetOperation())
	}
	return stream.Send(answer)
}

// wanted are the types that the bridge is to host: those that apps here select, and no app here hosts.
// It hosts a type whose owner is away or in dispute, too, so that callers are told why.
func (p *placement) wanted() []string {
	view, known := p.bridge.view.Load()
	table, _ := p.table.Load()
	if !known || closed(p.leaving) {
		return nil
	}
	var types []string
	for i := range view.Imports {
		typ := view.Imports[i].Type
		if other := table.other(typ, p.bridge.cfg.App().ID); other != "" {
			p.bridge.often.Warn("local "+typ, "an actor type of another cluster is hosted here, too; it is not bridged until one of the two is gone",
				"type", typ, "owner", view.Imports[i].Owner, "host", "app "+p.bridge.cfg.Namespace+"/"+other)
			continue
		}
		types = append(types, typ)
	}
	return types
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// leave has the bridge host nothing, and returns once nobody calls it any more, or ctx ends.
func (p *placement) leave(ctx context.Context) {
	if table, known := p.table.Load(); !known || !table.has(p.self) {
		return
	}
	close(p.leaving)
	select {
	case <-p.gone:
	case <-ctx.Done():
	}
}

// health follows whether calls can be passed on to hosts here.
func (p *placement) health(ctx context.Context, turn func(error)) {
	for {
		err, known, changed := p.problem.Follow()
		if known {
			if err != nil {
				err = fmt.Errorf("the placement service at %s is not reached: %w", p.bridge.cfg.Placement, err)
			}
			turn(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// connection returns the one to a host, by its own certificate, for one call. It connects with the
// first call.
func (p *placement) connection(to hostKey) (*hostConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn := p.conns[to]; conn != nil {
		conn.calls++
		return conn, nil
	}
	b := p.bridge
	expect := func(id identity.ID) error {
		want := catalog.App{Namespace: b.cfg.Namespace, ID: to.app}
		if domain, _ := b.identity.Domain(); id.App != want || domain != id.TrustDomain {
			return fmt.Errorf("%s is %s; the placement service says that it is app %s", to.address, id, want)
		}
		return nil
	}
	conn, err := grpc.NewClient("passthrough:///"+to.address, append(b.dialOptions(expect),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: lookAgain, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lookFor}, MinConnectTimeout: lookFor}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to.address, err)
	}
	p.conns[to] = &hostConn{ClientConn: conn, calls: 1}
	return p.conns[to], nil
}

// release ends what connection began.
func (p *placement) release(conn *hostConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn.calls--; conn.gone && conn.calls == 0 {
		conn.Close()
	}
}

// forget closes the connections to hosts that a table does not have, once their calls have ended.
func (p *placement) forget(next *table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for to, conn := range p.conns {
		if next.has(to.address) {
			continue
		}
		delete(p.conns, to)
		if conn.gone = true; conn.calls == 0 {
			conn.Close()
		}
	}
}

// table is who hosts what.
type table struct {
	types map[string]*ring
	all   map[string]struct{} // the addresses of all hosts
}

func newTable(from *placementv1.PlacementTables) *table {
	t := &table{types: map[string]*ring{}, all: map[string]struct{}{}}
	for typ, hosts := range from.GetEntries() {
		r := &ring{points: int(max(0, min(from.GetReplicationFactor(), maxPoints)))}
		for _, address := range slices.Sorted(maps.Keys(hosts.GetLoadMap())) {
			r.hosts = append(r.hosts, hostKey{address, hosts.GetLoadMap()[address].GetId()})
			t.all[address] = struct{}{}
		}
		t.types[typ] = r
	}
	return t
}

// has tells whether anybody at an address hosts anything.
func (t *table) has(address string) bool {
	if t == nil {
		return false
	}
	_, ok := t.all[address]
	return ok
}

// host is the sidecar that hosts an actor.
func (t *table) host(typ, id string) (hostKey, bool) {
	if t == nil || t.types[typ] == nil {
		return hostKey{}, false
	}
	return t.types[typ].find(id)
}

// other names an app other than one that hosts a type; empty without any.
func (t *table) other(typ, than string) string {
	if t == nil || t.types[typ] == nil {
		return ""
	}
	for _, h := range t.types[typ].hosts {
		if h.app != than {
			return fmt.Sprintf("%s at %s", h.app, h.address)
		}
	}
	return ""
}
