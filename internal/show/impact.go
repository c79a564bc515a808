package show

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// What becomes of a call whose routes lead to a cluster, by how much it matters.
const (
	harmFails     = "fails"     // no route is ready
	harmElsewhere = "elsewhere" // it takes another route, and the one to the cluster would come first
	harmStale     = "stale"     // it goes there, though nothing is heard from the cluster
	harmNone      = "none"      // it goes there as ever, or the route there stands by
)

var harms = []string{harmFails, harmElsewhere, harmStale, harmNone}

// impact is what becomes of a call by the state that the cluster is in.
func impact(c *v1alpha1.GraphCall, cluster string) string {
	var there, taken []*v1alpha1.GraphRoute
	for _, r := range c.GetRoutes() {
		if r.GetCluster() == cluster && r.GetWeight() > 0 {
			there = append(there, r)
		}
		if r.GetTaken() {
			taken = append(taken, r)
		}
	}
	is := func(r *v1alpha1.GraphRoute) bool { return r.GetCluster() == cluster }
	switch at := slices.IndexFunc(taken, is); {
	case len(there) == 0:
		return harmNone
	case len(taken) == 0:
		return harmFails
	case at >= 0 && taken[at].GetState() == callStale:
		return harmStale
	case at < 0 && there[0].GetPriority() <= taken[0].GetPriority(): // both are by priority
		return harmElsewhere
	}
	return harmNone
}

// GraphTable writes a line for each call: where it goes, and its other routes. If the calls were
// filtered by one cluster, those that it harms come first.
func GraphTable(w io.Writer, g *v1alpha1.GraphResponse) error {
	calls := slices.Clone(g.GetCalls())
	slices.SortStableFunc(calls, func(a, b *v1alpha1.GraphCall) int {
		return cmp.Compare(slices.Index(harms, a.GetHarm()), slices.Index(harms, b.GetHarm()))
	})
	heading := []string{"CALLER", "CALLEE", "HARM", "NOW", "OTHER ROUTES", "SEEN", "LET IN BY"}
	var table [][]string
	for _, c := range calls {
		caller := Name(c.GetCaller())
		if c.GetIn() != g.GetCluster() {
			caller += " in " + cmp.Or(c.GetIn(), "unknown")
		}
		now, others := ways(c)
		table = append(table, []string{caller, Name(c.GetCallee()), c.GetHarm(), now, others, yes(c.GetSeen()), cmp.Or(c.GetRule(), "nothing")})
	}
	if len(calls) == 0 || calls[0].GetHarm() == "" {
		all := without(append([][]string{heading}, table...), "HARM")
		heading, table = all[0], all[1:]
	}
	return rows(w, heading, table, "LET IN BY", "SEEN")
}

// ways are where a call goes now, and its other routes with their states.
func ways(c *v1alpha1.GraphCall) (now, others string) {
	var to, rest []string
	for _, r := range c.GetRoutes() {
		switch {
		case r.GetTaken() && r.GetState() == callReady:
			to = append(to, r.GetCluster())
		case r.GetTaken():
			to = append(to, r.GetCluster()+" ("+r.GetState()+")")
		case r.GetUsable() && r.GetState() == callReady:
			rest = append(rest, r.GetCluster()+" (stands by)")
		case r.GetUsable():
			rest = append(rest, r.GetCluster()+" (stands by, "+r.GetState()+")")
		default:
			rest = append(rest, r.GetCluster()+" ("+r.GetState()+")")
		}
	}
	now = "to " + strings.Join(to, ", ")
	switch {
	case c.GetState() == callDenied:
		now = callDenied
	case len(to) == 0:
		now = "fails"
	}
	return now, cmp.Or(strings.Join(rest, ", "), "-")
}
