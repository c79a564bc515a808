package peering

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// The states of a gateway address, as "isthmus status" prints them.
const (
	gatewayConnected  = "connected"
	gatewayConnecting = "connecting"
	gatewayRefused    = "refused"
	gatewaySilent     = "silent"
)

// allRefuseFor is how long all gateways of a cluster must refuse connections before its lease
// ends early. Callers' connections would be refused as well. It is longer than it takes to
// replace a gateway on the same port.
const allRefuseFor = 300 * time.Millisecond

// uselessFor is how long a gateway is left alone whose last connection proved useless, while others work.
const uselessFor = time.Minute

// gateways is the state of a cluster's gateway addresses. It is safe for concurrent use.
type gateways struct {
	mu     sync.Mutex
	all    []*gateway       // in the order of the Cluster object
	object *catalog.Cluster // the newest one
}

// gateway is one address. gateways.mu guards it.
type gateway struct {
	address  string
	state    string
	since    time.Time
	err      error
	refused  time.Time // start of the current run of refusals; zero if the last attempt was none
	streams  int       // through it, with messages
	conns    int       // through it, made or being made
	failedAt time.Time // when a connection through it last proved useless; zero after a message
	lost     time.Time // when an attempt to connect last failed, or a connection ended with an error
	away     bool      // it was last told of as one that is not reached
}

func newGateways(addresses []string) *gateways {
	g := &gateways{}
	for _, address := range addresses {
		g.all = append(g.all, &gateway{address: address, state: gatewayConnecting, since: time.Now()})
	}
	return g
}

func (g *gateway) setState(state string, err error) {
	if g.state != state {
		g.state, g.since = state, time.Now()
	}
	g.err = err
}

// tryOrder sorts the gateways for an attempt: working ones first, the latest failure last. Among
// those, gateways without a connection of this link come first. The first one counts as having the
// connection until tried is called, so that two attempts at once begin at different gateways.
func (g *gateways) tryOrder() (order []*gateway, tried func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	order = slices.Clone(g.all)
	slices.SortStableFunc(order, func(a, b *gateway) int {
		return cmp.Or(a.failedAt.Compare(b.failedAt), a.conns-b.conns)
	})
	if len(order) == 0 {
		return nil, func() {}
	}
	first := order[0]
	first.conns++
	return order, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		first.conns--
	}
}

// connected records a new connection.
func (g *gateways) connected(at *gateway) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at.refused = time.Time{}
	at.conns++
}

// setObject sets the current Cluster object, and clears the errors of the one before.
func (g *gateways) setObject(object *catalog.Cluster) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.object = object
	for _, at := range g.all {
		at.err = nil
	}
}

// closed records the end of a connection, with its error. The error counts only if the Cluster
// object is still the same.
func (g *gateways) closed(at *gateway, heard bool, by *catalog.Cluster, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at.conns--
	if heard {
		at.streams--
	}
	if at.streams == 0 {
		at.setState(gatewayConnecting, nil)
		if by == g.object {
			at.err = err
		}
	}
	if err != nil {
		at.lost = time.Now()
	}
	if err != nil && (!heard || errors.Is(err, errUnready)) {
		at.failedAt = time.Now()
	}
}

// idle is a gateway without a connection, if gateway at has more than one. One that proved useless is
// left alone for a while.
func (g *gateways) idle(at *gateway) *gateway {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.conns < 2 {
		return nil
	}
	i := slices.IndexFunc(g.all, func(o *gateway) bool { return o.conns == 0 && time.Since(o.failedAt) > uselessFor })
	if i < 0 {
		return nil
	}
	return g.all[i]
}

// multiple tells whether there is another gateway to try.
func (g *gateways) multiple() bool { return len(g.all) > 1 }

// heard records the first message of a stream. It returns true if the gateway is news: it was told of
// as one that is not reached.
func (g *gateways) heard(at *gateway) (back bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at.streams++
	at.failedAt = time.Time{}
	at.setState(gatewayConnected, nil)
	back, at.away = at.away, false
	return back
}

// failed records a failed attempt to connect. It returns true if the gateway is news: it refuses
// connections or does not answer, and was not told of.
func (g *gateways) failed(at *gateway, err error) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at.lost = time.Now()
	if !isConnRefused(err) {
		at.refused = time.Time{}
	} else if at.refused.IsZero() {
		at.refused = time.Now()
	}
	if at.streams > 0 {
		return false
	}
	switch {
	case isConnRefused(err):
		at.setState(gatewayRefused, err)
	case isTimeout(err):
		at.setState(gatewaySilent, err)
	default:
		at.setState(gatewayConnecting, err)
		return false
	}
	news, at.away = !at.away, true
	return news
}

// silent records that an attempt to connect gets no answer.
func (g *gateways) silent(at *gateway) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.streams == 0 && at.state != gatewayRefused {
		at.setState(gatewaySilent, errors.New("no answer from this address"))
	}
}

// allRefuse tells whether all gateways have refused connections for long enough, with a text that
// says so.
func (g *gateways) allRefuse() (text string, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	addresses := make([]string, len(g.all))
	for i, at := range g.all {
		if at.refused.IsZero() || time.Since(at.refused) < allRefuseFor {
			return "", false
		}
		addresses[i] = at.address
	}
	if len(addresses) == 1 && addresses[0] == byTunnel {
		return "it dials this cluster, and has no tunnel open", true
	}
	if len(addresses) == 1 {
		return "its gateway " + addresses[0] + " refuses connections", true
	}
	return "its gateways " + strings.Join(addresses, ", ") + " refuse connections", true
}

// allFail tells whether the last attempt failed at each gateway.
func (g *gateways) allFail() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !slices.ContainsFunc(g.all, func(at *gateway) bool { return at.err == nil })
}

// allLostSince tells whether an attempt has failed at each gateway since a moment.
func (g *gateways) allLostSince(began time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !slices.ContainsFunc(g.all, func(at *gateway) bool { return at.lost.Before(began) })
}

// lastError returns the error of the first gateway that has one, or nil.
func (g *gateways) lastError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.all {
		if at.err != nil {
			return at.err
		}
	}
	return nil
}

func (g *gateways) wire() []*v1alpha1.GatewayStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*v1alpha1.GatewayStatus, len(g.all))
	for i, at := range g.all {
		all[i] = &v1alpha1.GatewayStatus{Address: at.address, State: at.state, SinceUnixMs: wallClock(at.since)}
		if at.err != nil {
			all[i].Error = at.err.Error()
		}
	}
	return all
}

// isConnRefused tells whether the other end refused the connection.
func isConnRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
