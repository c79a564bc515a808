package catalog

import (
	"fmt"
	"math"
	"strings"
)

// Explain is [View.Find] and [Plan.Pick] with the reasons for its outcome.
func (v *View) Explain(app App) Decision { return v.ExplainCall(app, nil) }

// ExplainCall is [View.Explain] for a call with these headers, which guests may take.
func (v *View) ExplainCall(app App, headers []HeaderValue) Decision {
	e, ok := v.Entries.Get(app)
	if !ok {
		r := v.refuse(app)
		return Decision{Outcome: r.Outcome, Rule: v.Rule, Revision: v.Revision, Reason: r.Reason}
	}
	d := e.Explain()
	d.Revision = v.Revision
	e.explainTakes(&d, headers)
	return d
}

// Explain chooses as [Entry.Pick] does, and returns the reasons.
func (e *Entry) Explain() Decision { return e.explain(e.Pick()) }

// Outline is [Entry.Explain] without a choice, for callers who choose among the addresses later. It
// has a cluster and an address only if there is no other.
func (e *Entry) Outline() Decision {
	shares := e.Shares()
	if len(shares) != 1 {
		d := e.explain("", nil)
		if d.Outcome == OK {
			d.Reason = fmt.Sprintf("%d routes to %s share the calls", len(shares), e.App)
		}
		return d
	}
	only := shares[0].Route
	address := only.GatewayAddress()
	if address == "" && len(only.Addresses) == 1 {
		address = only.Addresses[0]
	}
	return e.explain(address, only)
}

// explain gives the reasons for a choice, or for all routes where none was taken.
func (e *Entry) explain(address string, taken *Route) Decision {
	d := Decision{Outcome: e.Outcome(), App: e.App, Rule: e.Rule.String()}
	d.Routes = make([]RouteDecision, len(e.Routes))
	for i := range e.Routes {
		r := &e.Routes[i]
		d.Routes[i] = RouteDecision{
			RouteSpec: r.RouteSpec, Ready: int(r.Ready),
			Taken: r == taken, Reason: e.routeReason(r, taken), Shards: r.Shards(), Draining: int(r.Draining), Ramp: int(r.Ramp),
			Zones: r.Zones.String(), Running: r.Running.String(),
		}
	}
	if name := e.Name(); name != e.App {
		d.Notes = append(d.Notes, name.String()+" is the caller's name for "+e.App.String()+", which certificates, the guard and traces go by")
	}
	switch h := e.Hash(); {
	case h.Header != "":
		d.Notes = append(d.Notes, "calls with the same "+h.Header+" go to the same instance")
	case h.Source != "":
		d.Notes = append(d.Notes, "all calls of the caller go to the same instance")
	}
	if d.Outcome != OK {
		d.Reason = e.refusalReason()
		return d
	}
	for _, share := range e.Shares() {
		for i := range e.Routes {
			if share.Route == &e.Routes[i] {
				d.Routes[i].Share = percent(share.Part)
			}
		}
	}
	if taken == nil {
		return d
	}
	d.Address, d.Cluster = address, taken.Cluster
	if taken.Gateway {
		d.Gateway, _, _ = strings.Cut(address, ":")
	}
	d.Reason = fmt.Sprintf("%s has %s", taken.Cluster, taken.Why(e.App))
	return d
}

// percent is a part in percent, as people write it: a sum of shares is as exact as a float64.
func percent(part float64) float64 { return math.Round(part*1e12) / 1e10 }

func (e *Entry) routeReason(r, taken *Route) string {
	why := r.Why(e.App)
	if taken == nil || !r.Usable() || r == taken {
		return why
	}
	switch first, last := e.levels(); {
	case r.Priority > last:
		return fmt.Sprintf("%s, but priority %d comes first", why, last)
	case r.Priority == first && taken.Priority == first:
		return fmt.Sprintf("%s; shares priority %d by weight, and this lookup fell on %s", why, r.Priority, taken.Cluster)
	case r.Priority == first:
		return fmt.Sprintf("%s, and this lookup fell on %s", why, taken.Cluster)
	default:
		return fmt.Sprintf("%s; takes what priority %d leaves for now, and this lookup fell on %s", why, first, taken.Cluster)
	}
}

// levels returns the first and the last priority that lookups reach. Something must be usable.
func (p *Plan) levels() (first, last uint32) {
	first = p.Routes[nextUsable(p.Routes)].Priority
	if p.choice == nil || p.choice.cuts == nil {
		return first, first
	}
	return first, p.Routes[p.choice.cuts[len(p.choice.cuts)-1].route].Priority
}
