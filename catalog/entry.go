package catalog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// RouteState says what stands behind a route at the moment.
type RouteState uint8

// The states of a route. Only Ready and Lapsed routes have addresses.
const (
	Ready          RouteState = iota // instances are ready there
	Lapsed                           // the lease has run out; served all the same, as the selection asks
	Empty                            // no instance is ready there
	NotExported                      // the cluster does not export the app to this caller
	UnknownCluster                   // no Cluster object has this name
	Unheard                          // nothing has been heard from the cluster yet
	LeaseExpired                     // the lease has run out, and the selection withdraws the route
	Delegated                        // the app's own cluster, left to the user's Dapr resolver
)

// Route is one way to an app with what is known of it. It is immutable.
type Route struct {
	Cluster   string // the cluster's own name, also for the caller's cluster
	Priority  uint32
	Weight    uint32
	State     RouteState
	Local     bool     // in the caller's own cluster
	Gateway   bool     // Addresses is one gateway host name
	Ready     uint32   // instances ready behind the route
	Draining  uint32   // instances that take no new calls
	Ramp      uint8    // the share of what is due to it that it takes for now, in percent; 0 stands for all
	Addresses []string // "ip:port" each, or one "<host name>:port", or one such for each shard
}

func (r *Route) usable() bool {
	return r.Weight > 0 && (r.State == Ready || r.State == Lapsed || r.State == Delegated)
}

// Rule says what lets a caller see an app: an endpoint of its selection or, with
// no selection, the cluster's default.
type Rule struct {
	Selection *AppEndpoints // nil for DefaultRule, and where only Text is known
	Index     int32         // of the endpoint in Selection.Endpoints
	Text      string        // what String answers, when set
}

// The rules that are no object's: the two default selections, and that of an app that
// looks itself up.
const (
	DefaultRule = "defaultSelection: local"
	ClosedRule  = "defaultSelection: none"
	SelfRule    = "an app may always call itself"
)

// String names the object and the line of it. It is made for every entry that is sent
// to a sidecar, hence by hand.
func (r Rule) String() string {
	s := r.Selection
	switch {
	case r.Text != "":
		return r.Text
	case s == nil || int(r.Index) >= len(s.Endpoints):
		return DefaultRule
	}
	var room [160]byte
	b := append(room[:0], KindAppEndpoints...)
	b = append(append(b, ' '), s.App.Namespace...)
	b = append(append(b, '/'), s.App.ID...)
	b = append(strconv.AppendInt(append(b, ", spec.endpoints["...), int64(r.Index), 10), "] ("...)
	if s.Source.File == "" {
		b = append(b, "line "...)
	} else {
		b = append(append(b, s.Source.File...), ':')
	}
	return string(append(strconv.AppendInt(b, int64(s.Endpoints[r.Index].Line), 10), ')'))
}

// Entry is one app in a view: a plan, and the rule that lets the caller see it. It is
// immutable.
type Entry struct {
	*Plan
	Rule Rule
}

// Plan is the routes to an app, and the choice among them made ready beforehand. It is
// immutable, and shared by the entries of all callers with the same routes.
type Plan struct {
	App    App
	Routes []Route // by priority, then as the rule lists them

	only  []string // the addresses, when one route takes everything
	first int16    // the routes that share the winning priority: Routes[first:end]
	end   int16
	total uint32 // weight of the usable ones among them
}

// NewEntry is an entry with a plan of its own.
func NewEntry(app App, rule Rule, routes []Route) *Entry {
	return &Entry{Plan: NewPlan(app, routes), Rule: rule}
}

// NewPlan prepares the choice among routes. It keeps the slice and sorts it by
// priority.
func NewPlan(app App, routes []Route) *Plan {
	slices.SortStableFunc(routes, func(a, b Route) int { return int(a.Priority) - int(b.Priority) })
	p := &Plan{App: app, Routes: routes}
	first := slices.IndexFunc(routes, func(r Route) bool { return r.usable() })
	if first < 0 {
		return p
	}
	level := routes[first].Priority
	end, usable := first, 0
	for ; end < len(routes) && routes[end].Priority == level; end++ {
		if r := &routes[end]; r.usable() {
			usable++
			p.total += r.Weight
		}
	}
	p.first, p.end = int16(first), int16(end)
	if usable == 1 {
		p.only = routes[first].Addresses
	}
	return p
}

// Pick chooses an address: among the usable routes of the winning priority by
// weight, among a route's addresses at random. Address is empty when nothing is
// ready, and when the choice fell on a Delegated route.
func (p *Plan) Pick() (address string, route *Route) {
	if p.total == 0 {
		return "", nil
	}
	route = p.choose()
	return one(route.Addresses), route
}

// pick is Pick without the route. It is small enough for the compiler to put one
// address, the most common case, in place of the call.
func (p *Plan) pick() string {
	if len(p.only) == 1 {
		return p.only[0]
	}
	return p.pickAny()
}

func (p *Plan) pickAny() string {
	if n := len(p.only); n > 0 {
		return p.only[uint64(rand.Uint32())*uint64(n)>>32]
	}
	address, _ := p.Pick()
	return address
}

func (p *Plan) choose() *Route {
	n := p.total
	if n > 1 {
		n = rand.Uint32N(n)
	} else {
		n = 0
	}
	winners := p.Routes[p.first:p.end]
	for i := range winners {
		r := &winners[i]
		if !r.usable() {
			continue
		}
		if n < r.Weight {
			return r
		}
		n -= r.Weight
	}
	return &winners[0] // not reached: total is the sum of the weights
}

func one(addresses []string) string {
	switch n := len(addresses); n {
	case 0:
		return ""
	case 1:
		return addresses[0]
	default:
		return addresses[uint64(rand.Uint32())*uint64(n)>>32]
	}
}

// WithoutLocal is the entry as it stands when the caller's own cluster is left out,
// which is what a caller falls back to whose own Dapr resolver found nothing.
func (e *Entry) WithoutLocal() *Entry {
	routes := slices.DeleteFunc(slices.Clone(e.Routes), func(r Route) bool { return r.Local })
	return NewEntry(e.App, e.Rule, routes)
}

// Outcome is what a lookup ends with.
func (p *Plan) Outcome() Outcome {
	if p.total > 0 {
		return OK
	}
	for i := range p.Routes {
		if p.Routes[i].State == LeaseExpired {
			return Stale
		}
	}
	return Unavailable
}

// Refusal is the error when nothing is ready: each route and why it was
// passed over.
func (p *Plan) Refusal() *Refusal {
	return &Refusal{Outcome: p.Outcome(), Reason: p.whyNot()}
}

func (p *Plan) whyNot() string {
	if len(p.Routes) == 0 {
		return "no cluster has " + p.App.String() + ": it is not in this one, and no other exports it to the caller"
	}
	parts := make([]string, len(p.Routes))
	for i := range p.Routes {
		parts[i] = p.Routes[i].Cluster + " (" + p.Routes[i].why(p.App) + ")"
	}
	return "no route to " + p.App.String() + " is ready: " + strings.Join(parts, ", ")
}

// why says in a few words what the route's state means.
func (r *Route) why(app App) string {
	switch r.State {
	case Ready:
		if r.Weight == 0 {
			return "weight is 0"
		}
		return fmt.Sprintf("%d ready", r.Ready)
	case Lapsed:
		return fmt.Sprintf("stale, %d ready when last heard; served because whenStale is serve", r.Ready)
	case Empty:
		return "no ready instance of " + app.String()
	case NotExported:
		return "does not export " + app.String() + " to the caller"
	case UnknownCluster:
		return "no Cluster object has this name"
	case Unheard:
		return "nothing heard from its resolver service yet"
	case LeaseExpired:
		return "lease has run out; withdrawn because whenStale is withdraw"
	case Delegated:
		return "left to the Dapr resolver configured as local"
	default:
		return fmt.Sprintf("state %d", r.State)
	}
}
