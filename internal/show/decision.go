package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// AddProbes adds to a decision what became of connections.
func AddProbes(d *v1alpha1.Decision, m *v1alpha1.ProbeResponse) {
	d.Probes = append([]*v1alpha1.ProbedEndpoint{}, m.GetEndpoints()...)
	if n := m.GetLeftOut(); n > 0 {
		d.Notes = append(d.GetNotes(), fmt.Sprintf("%d more endpoints were not tried", n))
	}
}

// probes writes what became of connections.
func probes(w io.Writer, all []*v1alpha1.ProbedEndpoint) error {
	if all == nil {
		return nil
	}
	if len(all) == 0 {
		_, err := Say(w, "\n  probe: the decision leads to no endpoint\n")
		return err
	}
	Say(w, "\n")
	var table [][]string
	for _, p := range all {
		text := p.GetIdentity() + after(": ", p.GetWhy())
		if p.GetIdentity() == "" {
			text = cmp.Or(p.GetWhy(), "no TLS: the service is insecure")
		}
		table = append(table, []string{"  " + p.GetAddress(), p.GetCluster(), p.GetResult(), Took(p), text})
	}
	return rows(w, []string{"  PROBED", "CLUSTER", "RESULT", "TOOK", "CERTIFICATE"}, table)
}

// Took is how long a probe took.
func Took(p *v1alpha1.ProbedEndpoint) string {
	return fmt.Sprintf("%.1f ms", float64(p.GetTookUs())/1000)
}

// shared tells whether lookups take the route and others.
func shared(r *v1alpha1.RouteDecision) bool { return r.GetShare() > 0 && r.GetShare() < 100 }

// Failing tells whether calls go by a route on which they fail, as far as the service knows.
func Failing(d *v1alpha1.Decision) bool {
	return slices.ContainsFunc(d.GetRoutes(), func(r *v1alpha1.RouteDecision) bool { return r.GetTaken() && r.GetFault() != "" })
}

// Explain writes a decision for people.
func Explain(w io.Writer, caller, app string, d *v1alpha1.Decision) error {
	outcome := d.GetOutcome()
	if Failing(d) {
		outcome += ", but calls fail"
	}
	Say(w, "%s asks for %s: %s\n\n", caller, app, outcome)
	cluster := d.GetCluster()
	if slices.ContainsFunc(d.GetRoutes(), shared) {
		cluster += " this time"
	}
	err := pairs(w, "  ", [][2]string{
		{"reason", d.GetReason()},
		{"address", d.GetAddress()},
		{"cluster", cluster},
		{"gateway", d.GetGateway()},
		{"rule", d.GetRule()},
		{"revision", strconv.FormatUint(d.GetRevision(), 10)},
	})
	if len(d.GetNotes()) > 0 {
		Say(w, "\n")
	}
	for _, note := range d.GetNotes() {
		paragraph(w, "  note: ", "    ", note)
	}
	if err != nil || len(d.GetRoutes()) == 0 {
		return cmp.Or(err, probes(w, d.GetProbes()))
	}
	Say(w, "\n")
	shown := alike(d.GetRoutes())
	if err := routes(w, shown); err != nil {
		return err
	}
	between := "\n"
	for _, about := range []struct {
		format string
		value  func(*v1alpha1.RouteDecision) string
	}{
		{"  fault %s: ", func(r *v1alpha1.RouteDecision) string { return r.GetFault() }},
		{"  peer %s: ", func(r *v1alpha1.RouteDecision) string { return r.GetPeer() }},
		{"  callers without a server name to %s: ", func(r *v1alpha1.RouteDecision) string { return r.GetUnnamed() }},
	} {
		for _, r := range shown {
			if text := about.value(r); text != "" {
				paragraph(w, between+fmt.Sprintf(about.format, r.GetCluster()), "    ", text)
				between = ""
			}
		}
	}
	return probes(w, d.GetProbes())
}

// fewAlike is how many routes that lead nowhere, for one reason, have a line each.
const fewAlike = 5

// alike are routes of which many that lead nowhere, for one reason, are one. JSON and YAML have all.
func alike(all []*v1alpha1.RouteDecision) (some []*v1alpha1.RouteDecision) {
	type kind struct {
		priority, weight uint32
		reason           string
	}
	nowhere := func(r *v1alpha1.RouteDecision) (kind, bool) {
		return kind{r.GetPriority(), r.GetWeight(), r.GetReason()}, !r.GetTaken() && r.GetReady() == 0 && r.GetDraining() == 0 && r.GetFault() == ""
	}
	counts := map[kind]int{}
	for _, r := range all {
		if k, ok := nowhere(r); ok {
			counts[k]++
		}
	}
	told := map[kind]bool{}
	for _, r := range all {
		k, ok := nowhere(r)
		switch {
		case !ok || counts[k] <= fewAlike:
			some = append(some, r)
		case !told[k]:
			told[k] = true
			sum := proto.CloneOf(r)
			sum.Cluster, sum.Peer = fmt.Sprintf("%d clusters", counts[k]), ""
			some = append(some, sum)
		}
	}
	return some
}

// routes writes a table of routes. Columns that say nothing are left out.
func routes(w io.Writer, all []*v1alpha1.RouteDecision) error {
	columns := []struct {
		name   string
		always bool
		value  func(*v1alpha1.RouteDecision) string
	}{
		{"  ROUTE", true, func(r *v1alpha1.RouteDecision) string { return "  " + r.GetCluster() }},
		{"PRIORITY", true, func(r *v1alpha1.RouteDecision) string { return number(r.GetPriority()) }},
		{"WEIGHT", true, func(r *v1alpha1.RouteDecision) string { return number(r.GetWeight()) }},
		{"TAKES", false, func(r *v1alpha1.RouteDecision) string { return r.GetTake() }},
		{"READY", true, func(r *v1alpha1.RouteDecision) string { return number(r.GetReady()) }},
		{"DRAINING", false, func(r *v1alpha1.RouteDecision) string { return unlessZero(r.GetDraining(), "") }},
		{"SHARDS", false, func(r *v1alpha1.RouteDecision) string { return unlessZero(r.GetShards(), "") }},
		{"RAMP", false, func(r *v1alpha1.RouteDecision) string { return unlessZero(r.GetRamp(), " %") }},
		{"MINREADY", false, func(r *v1alpha1.RouteDecision) string { return r.GetMinReady() }},
		{"SHARE", false, func(r *v1alpha1.RouteDecision) string {
			if shared(r) {
				return percent(r.GetShare())
			}
			return ""
		}},
		{"VERSIONS", false, func(r *v1alpha1.RouteDecision) string {
			if r.GetVersions() != "" {
				return r.GetVersions() + " of " + cmp.Or(r.GetRunning(), "none")
			}
			return r.GetRunning()
		}},
		{"ZONES", false, func(r *v1alpha1.RouteDecision) string { return r.GetZones() }},
		{"", true, func(r *v1alpha1.RouteDecision) string {
			if r.GetTaken() {
				return "taken"
			}
			return ""
		}},
		{"WHY", true, func(r *v1alpha1.RouteDecision) string { return r.GetReason() }},
	}
	var heading []string
	table := make([][]string, len(all))
	for _, c := range columns {
		if !c.always && !slices.ContainsFunc(all, func(r *v1alpha1.RouteDecision) bool { return c.value(r) != "" }) {
			continue
		}
		heading = append(heading, c.name)
		for i := range all {
			table[i] = append(table[i], c.value(all[i]))
		}
	}
	return rows(w, heading, table, "VERSIONS", "ZONES", "SHARDS", "MINREADY", "WEIGHT")
}

func unlessZero(n uint32, unit string) string {
	if n == 0 {
		return ""
	}
	return number(n) + unit
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// Lookups writes how lookups end, by the names of the apps.
func Lookups(w io.Writer, names []string, all []*v1alpha1.Decision) error {
	table := make([][]string, len(all))
	for i, d := range all {
		outcome := d.GetOutcome()
		if Failing(d) {
			outcome += ", but calls fail"
		}
		table[i] = []string{names[i], outcome, cmp.Or(d.GetCluster(), "-"), cmp.Or(d.GetRule(), "-"), d.GetReason()}
	}
	return rows(w, []string{"CALLEE", "OUTCOME", "CLUSTER", "RULE", "REASON"}, table, "RULE")
}
