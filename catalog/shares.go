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
		return []Share{{&p.Routes[nextUsable(p.Routes, 0)], 1}}
	}
	shares := make([]Share, 0, len(p.choice.cuts))
	from := uint64(0)
	for _, c := range p.choice.cuts {
		shares = append(shares, Share{&p.Routes[c.route], (float64(c.last-from) + 1) / math.MaxUint64})
		from = c.last + 1
	}
	return shares
}
