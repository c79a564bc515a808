package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// Targets says which addresses may be checked. Its methods are called concurrently, for each
// connection, and must not block.
type Targets interface {
	// Instance returns an error for an address that no app can have, such as one that this
	// service listens on.
	Instance(netip.AddrPort) error
	// Direct returns an error also for an address that other hosts can't use: loopback, unless
	// the configuration allows it.
	Direct(netip.AddrPort) error
}

// Subject is the target of a check, and the app that it is for.
type Subject struct {
	App  catalog.App // that registered the check
	Host netip.Addr  // the only address that the check may connect to
	// Local says that the check was registered from loopback, so it may check loopback.
	Local bool
	// Unverified says that nothing proves that the host belongs to the app.
	Unverified bool
	Failing    bool // the check failed the last time
}

// Prober limits all checks of a service: their addresses, how many begin per second, and how many
// run at a time; for each app, for each host, and in all. A check over a limit is late, but never
// lost.
type Prober struct {
	targets Targets
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	gates   gates
}

// Config configures a Prober.
type Config struct {
	Targets Targets // nil: any address that an instance can have, except loopback
	// Dial connects; nil: by a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// New makes a Prober. It starts nothing.
func New(cfg Config) *Prober {
	p := &Prober{targets: cfg.Targets, dial: cfg.Dial, gates: gates{all: map[key]*gate{}, sweep: sweepFrom}}
	if p.targets == nil {
		p.targets = (*destination.Rules)(nil)
	}
	if p.dial == nil {
		p.dial = new(net.Dialer).DialContext
	}
	return p
}

// Allowed returns an error if a check may not connect to an address.
func (p *Prober) Allowed(s Subject, at netip.AddrPort) error {
	if s.Local && at.Addr().Unmap().IsLoopback() {
		return p.targets.Instance(at)
	}
	return p.targets.Direct(at)
}

// Wait returns once a check may begin. The check must use the returned context and call done at
// its end. A timeout of the check begins after Wait. The error is that of ctx.
func (p *Prober) Wait(ctx context.Context, s Subject) (turn context.Context, done func(), err error) {
	s.Host = s.Host.Unmap()
	all := s.gates()
	for n, k := range all {
		if err := p.gates.enter(ctx, k); err != nil {
			p.leave(all[:n])
			return nil, nil, err
		}
	}
	t := &activeCheck{prober: p, subject: s}
	return context.WithValue(ctx, checkKey{}, t), sync.OnceFunc(func() { p.leave(all[:]) }), nil
}

func (p *Prober) leave(all []gateKey) {
	for _, k := range all {
		p.gates.leave(k.key)
	}
}

// activeCheck is a running check.
type activeCheck struct {
	prober  *Prober
	subject Subject
	dialed  atomic.Bool
}

type checkKey struct{}

// errNotAdmitted is the error of a check that did not wait.
var errNotAdmitted = errors.New("the check did not call Prober.Wait")

// dial connects for the check of ctx. It always connects to the host of the check, whatever host
// the address names: it resolves no name, and a redirect leads nowhere else.
func dial(ctx context.Context, address string) (net.Conn, error) {
	t, ok := ctx.Value(checkKey{}).(*activeCheck)
	if !ok {
		return nil, errNotAdmitted
	}
	_, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	to := netip.AddrPortFrom(t.subject.Host, uint16(port))
	if err := t.prober.Allowed(t.subject, to); err != nil {
		return nil, fmt.Errorf("not asked: %w", err)
	}
	if t.dialed.Swap(true) { // a redirect or a retry: later checks wait for it
		for _, k := range t.subject.gates() {
			t.prober.gates.take(k)
		}
	}
	return t.prober.dial(ctx, "tcp", to.String())
}
