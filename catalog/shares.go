package catalog

import "math"

// Share is a route's part of a plan's lookups, out of 1, spread evenly over its addresses.
type Share struct {
	Route *Route
	Part  float64
}

// Shares returns the routes that lookups reach, with the part of each. It is for edges that
// return several addresses to choose from. The routes still belong to the plan.
func (p *Plan) Shares() []Share {
	switch {
	case p.single == "" && p.choice == nil:
		return nil
	case p.choice == nil || p.choice.cuts == nil:
		return []Share{{&p.Routes[nextUsable(p.Routes)], 1}}
	}
	shares := make([]Share, 0, len(p.choice.cuts))
	from := uint64(0)
	for _, c := range p.choice.cuts {
		shares = append(shares, Share{&p.Routes[c.route], (float64(c.last-from) + 1) / math.MaxUint64})
		from = c.last + 1
	}
	return shares
}

// Place is where a route stands for clients that choose by priority and weight themselves.
type Place struct{ Priority, Weight uint32 }

// placeScale is what the weights of routes add up to that do not share calls by their own weights.
const placeScale = 1000

// Places returns the place of each route, in room if there is enough. It is the route's own priority
// and weight, unless a route ramps up or lacks instances. Then all that lookups reach are of one
// priority, and share calls as lookups do.
func (p *Plan) Places(room []Place) []Place {
	places, uneven := room[:0], false
	for i := range p.Routes {
		r := &p.Routes[i]
		places = append(places, Place{r.Priority, r.Weight})
		offer := r.Offer()
		uneven = uneven || offer.Weight > 0 && (offer.Ramp < 1 || offer.Capacity < 1)
	}
	if !uneven {
		return places
	}
	shares := p.Shares()
	for i := range p.Routes {
		for _, s := range shares {
			if s.Route == &p.Routes[i] {
				places[i] = Place{shares[0].Route.Priority, max(1, uint32(math.Round(s.Part*placeScale)))}
			}
		}
	}
	return places
}
