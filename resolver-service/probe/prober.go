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
	"github.com/isthmus-mesh/isthmus/resolver-service/destination"
)

// Targets says which addresses may be asked. Both methods are called for each connection,
// from many goroutines, and must not block.
type Targets interface {
	// Instance tells why an address is none that any app can have, such as one that this
	// service listens on.
	Instance(netip.AddrPort) error
	// Direct tells in addition why an address is none for somebody on another machine:
	// loopback, unless that is meant.
	Direct(netip.AddrPort) error
}

// Subject is who is asked by a check, and on whose behalf.
type Subject struct {
	App  catalog.App // that the check is registered for
	Host netip.Addr  // the one address that the check may connect to
	// Local says that whoever registered the check did so from loopback, and may have
	// loopback asked.
	Local bool
	// Unverified says that nothing shows that the host is the app's: it was only named.
	Unverified bool
	Failing    bool // the check failed the last time
}

// Prober holds all checks of a service to one set of rules: which addresses they ask, and how
// many begin in a second and are under way, of one app, to one host, and in all. A check that
// is over a limit is late and never lost.
type Prober struct {
	targets Targets
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	gates   gates
}

// Config says what a Prober works with.
type Config struct {
	Targets Targets // nil: all that an instance can have, but no loopback
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

// Allowed tells why a check may not ask at an address.
func (p *Prober) Allowed(s Subject, at netip.AddrPort) error {
	if s.Local && at.Addr().Unmap().IsLoopback() {
		return p.targets.Instance(at)
	}
	return p.targets.Direct(at)
}

// Wait returns once a check may begin. The check must ask with the context that is returned,
// and call done when it has ended. A time-out of the check begins after Wait. The error is
// that of ctx.
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

// aTurn is one check under way.
type activeCheck struct {
	prober  *Prober
	subject Subject
	dialed  atomic.Bool
}

type checkKey struct{}

// errNoTurn is the error of a check that did not wait.
var errNotAdmitted = errors.New("a check must wait for its turn")

// dial connects for the check that ctx belongs to. Whatever host the address names, it goes to
// the one that the check is about: no name is looked up, and no redirect leads elsewhere.
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
	if t.dialed.Swap(true) { // a redirect, or another try: later checks wait for it
		for _, k := range t.subject.gates() {
			t.prober.gates.take(k)
		}
	}
	return t.prober.dial(ctx, "tcp", to.String())
}
