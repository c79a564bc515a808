package show

import (
	"cmp"
	"io"
	"slices"
	"strings"
)

// What becomes of a call whose routes lead to a cluster, by how much it matters.
const (
	harmFails     = "fails"     // no route is ready
	harmElsewhere = "elsewhere" // it takes another route, and the one to the cluster would come first
	harmStale     = "stale"     // it goes there, though nothing is heard from the cluster
	harmNone      = "none"      // it goes there as ever, or the route there stands by
)

var harms = []string{harmFails, harmElsewhere, harmStale, harmNone}

// harm is what becomes of the call by the state that the cluster is in.
func (c *GraphCall) harm(cluster string) string {
	var there, taken []GraphRoute
	for _, r := range c.Routes {
		if r.Cluster == cluster && r.Weight > 0 {
			there = append(there, r)
		}
		if r.Taken {
			taken = append(taken, r)
		}
	}
	is := func(r GraphRoute) bool { return r.Cluster == cluster }
	switch at := slices.IndexFunc(taken, is); {
	case len(there) == 0:
		return harmNone
	case len(taken) == 0:
		return harmFails
	case at >= 0 && taken[at].State == callStale:
		return harmStale
	case at < 0 && there[0].Priority <= taken[0].Priority: // both are by priority
		return harmElsewhere
	}
	return harmNone
}

// Table writes a line for each call: where it goes, and its other routes. If the calls were
// filtered by one cluster, those that it harms come first.
func (g *Graph) Table(w io.Writer) error {
	calls := slices.Clone(g.Calls)
	slices.SortStableFunc(calls, func(a, b GraphCall) int { return cmp.Compare(slices.Index(harms, a.Harm), slices.Index(harms, b.Harm)) })
	heading := []string{"CALLER", "CALLEE", "HARM", "NOW", "OTHER ROUTES", "SEEN", "LET IN BY"}
	var table [][]string
	for i := range calls {
		c := &calls[i]
		caller := c.Caller
		if c.In != g.Cluster {
			caller += " in " + cmp.Or(c.In, "unknown")
		}
		now, others := c.ways()
		table = append(table, []string{caller, c.Callee, c.Harm, now, others, yes(c.Seen), cmp.Or(c.Rule, "nothing")})
	}
	if len(calls) == 0 || calls[0].Harm == "" {
		all := without(append([][]string{heading}, table...), "HARM")
		heading, table = all[0], all[1:]
	}
	return rows(w, heading, table, "LET IN BY", "SEEN")
}

// ways are where a call goes now, and its other routes with their states.
func (c *GraphCall) ways() (now, others string) {
	var to, rest []string
	for _, r := range c.Routes {
		switch {
		case r.Taken && r.State == callReady:
			to = append(to, r.Cluster)
		case r.Taken:
			to = append(to, r.Cluster+" ("+r.State+")")
		case r.Usable && r.State == callReady:
			rest = append(rest, r.Cluster+" (stands by)")
		case r.Usable:
			rest = append(rest, r.Cluster+" (stands by, "+r.State+")")
		default:
			rest = append(rest, r.Cluster+" ("+r.State+")")
		}
	}
	now = "to " + strings.Join(to, ", ")
	switch {
	case c.State == callDenied:
		now = callDenied
	case len(to) == 0:
		now = "fails"
	}
	return now, cmp.Or(strings.Join(rest, ", "), "-")
}
