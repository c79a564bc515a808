package catalog

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
)

// Plan is the routes to an app, with the choice among them prepared. It is immutable except for
// the position of the choice. All callers with the same routes share it.
type Plan struct {
	App    App
	Routes []Route // by priority, then as the rule lists them

	single string   // the address, if there is only one
	only   []string // the addresses, if one route takes everything
	choice *Choice  // nil if there is one address or none; without cuts if one route takes everything
	memos  [memos]atomic.Pointer[any]
}

// Memo is a place for what one edge makes of a plan.
type Memo int

// The places.
const (
	MemoDNS Memo = iota
	MemoXDS
	MemoDial // in a sidecar
	memos
)

// Memo returns the value of the last [Plan.Keep], or nil.
func (p *Plan) Memo(of Memo) any {
	if m := p.memos[of].Load(); m != nil {
		return *m
	}
	return nil
}

// Keep caches what an edge has made of the plan, such as encoded answers, as long as the plan
// lives. So it is made once for all callers with these routes. Any goroutine may call it; the
// last call wins.
func (p *Plan) Keep(of Memo, memo any) { p.memos[of].Store(&memo) }

// NewPlan prepares the choice among routes. It keeps the slice, sorts it by priority, and decides
// whether damped routes are used.
func NewPlan(app App, routes []Route) *Plan {
	sortRoutes(routes)
	lastResort(routes)
	p := &Plan{App: app, Routes: routes}
	first := nextUsable(routes)
	var room [8]Offer
	switch offers := offersOf(routes, room[:0]); {
	case first < 0:
		return p
	case !sole(offers):
		p.choice = NewChoice(offers)
	case len(routes[first].Addresses) == 1:
		p.single = routes[first].Addresses[0]
	default:
		p.only, p.choice = routes[first].Addresses, &Choice{}
		p.choice.sequence.shared.Store(rand.Uint64())
	}
	return p
}

func nextUsable(routes []Route) int {
	for i := range routes {
		if routes[i].Usable() {
			return i
		}
	}
	return -1
}

// lastResort makes damped routes usable if no other is: damping never takes a caller's last
// route.
func lastResort(routes []Route) {
	state := LastResort
	for i := range routes {
		if r := &routes[i]; r.Usable() && r.State != LastResort {
			state = Damped
		}
	}
	for i := range routes {
		if r := &routes[i]; r.State == Damped || r.State == LastResort {
			r.State = state
		}
	}
}

func sortRoutes(routes []Route) {
	slices.SortStableFunc(routes, func(a, b Route) int { return int(a.Priority) - int(b.Priority) })
}

// Pick chooses an address: among the usable routes by priority, weight and ramp, and evenly among
// a route's addresses. The address is empty if nothing is ready.
func (p *Plan) Pick() (address string, route *Route) {
	i, n := p.PickAt()
	if i < 0 {
		return "", nil
	}
	if route = &p.Routes[i]; n >= 0 {
		address = route.Addresses[n]
	}
	return address, route
}

// PickAt is [Plan.Pick] by the indexes of the route and of its address. Both are -1 if nothing is
// ready, and that of the address alone if the route has none.
func (p *Plan) PickAt() (route, address int) {
	switch {
	case p.single != "":
		return nextUsable(p.Routes), 0
	case p.choice == nil:
		return -1, -1
	case p.choice.cuts == nil:
		return nextUsable(p.Routes), p.among()
	}
	return p.share()
}

// Address is [Plan.Pick] without the route. It is small enough to be inlined for the most common
// case, a single address.
func (p *Plan) Address() string {
	if p.single != "" {
		return p.single
	}
	return p.pickAny()
}

func (p *Plan) pickAny() string {
	switch {
	case p.choice == nil:
		return ""
	case p.choice.cuts == nil && len(p.only) > 0:
		return p.only[p.among()]
	}
	address, _ := p.Pick()
	return address
}

// among is the index of the next address if one route takes everything.
func (p *Plan) among() int {
	if len(p.only) == 0 {
		return -1
	}
	i, _ := bits.Mul64(p.choice.sequence.next(), uint64(len(p.only)))
	return int(i)
}

// share is the next choice among several routes. The position in a route's cut selects its address.
func (p *Plan) share() (route, address int) {
	c := p.choice
	i, point := c.next()
	route = c.cuts[i].route
	n := uint64(len(p.Routes[route].Addresses))
	if n < 2 {
		return route, int(n) - 1
	}
	var first uint64
	if i > 0 {
		first = c.cuts[i-1].last + 1
	}
	return route, int(scale(point-first, n, c.cuts[i].last-first+1))
}

// Follow continues the choice of the plan that p replaces; see [Choice.Follow].
func (p *Plan) Follow(replaced *Plan) {
	if replaced != nil {
		p.choice.Follow(replaced.choice)
	}
}

// Outcome is the outcome of a lookup. With [NotReady] a lookup waits, since a cluster is about to
// answer.
func (p *Plan) Outcome() Outcome {
	if p.single != "" || p.choice != nil {
		return OK
	}
	outcome := Unavailable
	for i := range p.Routes {
		switch p.Routes[i].State {
		case Asked:
			return NotReady
		case LeaseExpired:
			outcome = Stale
		}
	}
	return outcome
}

// Refusal is the error if nothing is ready: each route, and why it was passed over.
func (p *Plan) Refusal() *Refusal {
	return &Refusal{Outcome: p.Outcome(), Reason: p.refusalReason()}
}

// mostReasons is how many routes a refusal names. Proxies and gRPC's servers take a few kilobytes of
// headers, which errors of calls are in; [View.Explain] has every route.
const mostReasons = 8

func (p *Plan) refusalReason() string {
	if len(p.Routes) == 0 {
		return "no cluster has " + p.App.String() + ": it is not in this one, and no AppExport of another lets the caller have it" + hereOnly(p.App)
	}
	parts := make([]string, len(p.Routes))
	for i := range p.Routes {
		parts[i] = p.Routes[i].Cluster + " (" + p.Routes[i].Why(p.App) + ")"
	}
	reason := "no route to " + p.App.String() + " is ready: " + BriefOf(parts, mostReasons)
	if r := &p.Routes[0]; len(p.Routes) == 1 && r.Local && r.State == Empty && r.Draining == 0 && CheckHostAppID(p.App.ID) == nil {
		reason += elsewhere
	}
	return reason + hereOnly(p.App)
}

// elsewhere is what is most likely wrong where an app runs in another cluster. Whether it does, the
// caller is not told.
const elsewhere = "; if it runs in another cluster, it takes an AppExport there that lets the caller have it"

// Same tells whether two plans lead to the same decisions.
func (p *Plan) Same(o *Plan) bool {
	return p == o || p.App == o.App && slices.EqualFunc(p.Routes, o.Routes, func(a, b Route) bool { return a.equal(&b) })
}
