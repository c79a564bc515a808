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

// refusedFor is for how long all gateways of a cluster must refuse connections before
// its lease ends early: callers' connections would go the same way. It is longer than a
// gateway takes to be replaced by another one on its port.
const allRefuseFor = 300 * time.Millisecond

// gateways is what is known of a cluster's gateway addresses. Any goroutine may use it.
type gateways struct {
	mu     sync.Mutex
	all    []*gateway       // in the order of the Cluster object
	object *catalog.Cluster // that counts
}

// gateway is one address. It is guarded by gateways.mu.
type gateway struct {
	address  string
	state    string
	since    time.Time
	err      error
	refused  time.Time // the first of refusals in a row; zero when the last attempt was none
	streams  int       // that are heard through it
	conns    int       // connections through it, made or being made
	failedAt time.Time // when a connection through it last turned out to be no good; zero once one is heard
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

// order is in which order to try them: those that have been of use before those that have
// not, the latest of these last; and first those that no other connection of this link
// goes through.
func (g *gateways) tryOrder() []*gateway {
	g.mu.Lock()
	defer g.mu.Unlock()
	order := slices.Clone(g.all)
	slices.SortStableFunc(order, func(a, b *gateway) int {
		return cmp.Or(a.failedAt.Compare(b.failedAt), a.conns-b.conns)
	})
	return order
}

// reached notes that there is a connection.
func (g *gateways) connected(at *gateway) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at.refused = time.Time{}
	at.conns++
}

// about notes which Cluster object counts from now on: errors are of the one before.
func (g *gateways) setObject(object *catalog.Cluster) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.object = object
	for _, at := range g.all {
		at.err = nil
	}
}

// left notes that there is not any more, and why by a Cluster object.
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
	if err != nil && (!heard || errors.Is(err, errUnready)) {
		at.failedAt = time.Now()
	}
}

// several tells whether there is another gateway to try.
func (g *gateways) multiple() bool { return len(g.all) > 1 }

// heard notes that a stream is heard through it.
func (g *gateways) heard(at *gateway) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at.streams++
	at.failedAt = time.Time{}
	at.setState(gatewayConnected, nil)
}

// failed notes an attempt to connect that failed.
func (g *gateways) failed(at *gateway, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isConnRefused(err) {
		at.refused = time.Time{}
	} else if at.refused.IsZero() {
		at.refused = time.Now()
	}
	if at.streams > 0 {
		return
	}
	switch {
	case isConnRefused(err):
		at.setState(gatewayRefused, err)
	case isTimeout(err):
		at.setState(gatewaySilent, err)
	default:
		at.setState(gatewayConnecting, err)
	}
}

// silent notes that an attempt to connect takes long.
func (g *gateways) silent(at *gateway) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.streams == 0 && at.state != gatewayRefused {
		at.setState(gatewaySilent, errors.New("nothing answers there"))
	}
}

// refuse tells whether all gateways have refused connections for long enough, and says so
// in words.
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
	if len(addresses) == 1 {
		return "its gateway " + addresses[0] + " refuses connections", true
	}
	return "its gateways " + strings.Join(addresses, ", ") + " refuse connections", true
}

// why is the latest reason why there is no connection; nil where there is none.
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

// refusal tells whether the other end refused a connection that was being made.
func isConnRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
