package catalog

import "math"

// Share is what a route takes of a plan's lookups: Part of them, of a total of 1, evenly
// among its addresses.
type Share struct {
	Route *Route
	Part  float64
}

// Shares are the routes that lookups fall on, with what each takes. It is for edges that
// hand several addresses out, for others to choose among. The routes stay the plan's.
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
		shares = append(shares, Share{c.route, (float64(c.last-from) + 1) / math.MaxUint64})
		from = c.last + 1
	}
	return shares
}
