package show

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// What traffic is summed up by, and sorted by.
const (
	ByEdge   = "edge"
	SortRate = "rate"
)

// Groupings lists what traffic may be summed up by.
func Groupings() []string { return []string{ByEdge, "pair", "caller", "callee", "cluster"} }

// Sortings lists what traffic may be sorted by.
func Sortings() []string { return []string{SortRate, "success", "p50", "p95", "p99"} }

// CheckTraffic checks what traffic is to be summed up and sorted by.
func CheckTraffic(by, order string) error {
	if !slices.Contains(Groupings(), by) {
		return fmt.Errorf("--by %s: want %s", by, strings.Join(Groupings(), ", "))
	}
	if !slices.Contains(Sortings(), order) {
		return fmt.Errorf("--sort %s: want %s", order, strings.Join(Sortings(), ", "))
	}
	return nil
}

// TrafficOf keeps the calls of an app and those to it; empty names stand for any.
func TrafficOf(all []*v1alpha1.TrafficEdge, about catalog.App) []*v1alpha1.TrafficEdge {
	filter := wire.App(about)
	return slices.DeleteFunc(all, func(e *v1alpha1.TrafficEdge) bool {
		return !wire.Passes(filter, wire.AppOf(e.GetCaller())) && !wire.Passes(filter, wire.AppOf(e.GetCallee()))
	})
}

// GroupTraffic sums edges up and sorts them. The answer that they are of tells the time.
func GroupTraffic(all []*v1alpha1.TrafficEdge, by, order string, of *v1alpha1.TrafficResponse) []*v1alpha1.TrafficEdge {
	if by != ByEdge {
		all = summedUp(all, by, time.Duration(of.GetToUnixMs()-of.GetFromUnixMs())*time.Millisecond)
	}
	value := map[string]func(*v1alpha1.TrafficEdge) float64{
		SortRate:  (*v1alpha1.TrafficEdge).GetCallsPerSecond,
		"success": func(e *v1alpha1.TrafficEdge) float64 { return -successOf(e) },
		"p50":     (*v1alpha1.TrafficEdge).GetP50Ms,
		"p95":     (*v1alpha1.TrafficEdge).GetP95Ms,
		"p99":     (*v1alpha1.TrafficEdge).GetP99Ms,
	}[order]
	slices.SortStableFunc(all, func(a, b *v1alpha1.TrafficEdge) int { return cmp.Compare(value(b), value(a)) })
	return all
}

func successOf(e *v1alpha1.TrafficEdge) float64 {
	if e.Success == nil {
		return 1
	}
	return e.GetSuccess()
}

// summedUp merges the edges that have the same caller, callee or cluster.
func summedUp(all []*v1alpha1.TrafficEdge, by string, over time.Duration) (groups []*v1alpha1.TrafficEdge) {
	type key struct{ caller, callerCluster, callee, cluster string }
	at := map[key]*v1alpha1.TrafficEdge{}
	sums := map[key]*traffic.Counts{}
	for _, e := range all {
		g := &v1alpha1.TrafficEdge{}
		switch by {
		case "pair":
			g.Caller, g.CallerCluster, g.Callee = e.GetCaller(), e.GetCallerCluster(), e.GetCallee()
		case "caller":
			g.Caller, g.CallerCluster = e.GetCaller(), e.GetCallerCluster()
		case "callee":
			g.Callee = e.GetCallee()
		case "cluster":
			g.Cluster = e.GetCluster()
		}
		k := key{Name(g.GetCaller()), g.GetCallerCluster(), Name(g.GetCallee()), g.GetCluster()}
		if at[k] == nil {
			at[k], sums[k] = g, &traffic.Counts{}
			groups = append(groups, g)
		}
		g = at[k]
		if counts, err := traffic.FromWire(e.GetTraffic()); err == nil {
			sums[k].Add(&counts)
		}
		g.UnderWay += e.GetUnderWay()
		if e.GetFault() != nil && (g.GetFault() == nil || g.GetFault().GetLevel() == "warn") {
			g.Fault = e.GetFault()
		}
	}
	for k, g := range at {
		g.Traffic = sums[k].Wire()
		sums[k].SumUp(g, over)
	}
	return groups
}

// Traffic writes a line for each edge, at most so many; 0 stands for all.
func Traffic(w io.Writer, m *v1alpha1.TrafficResponse, by string, most int) error {
	all := m.GetEdges()
	over := time.Duration(m.GetToUnixMs()-m.GetFromUnixMs()) * time.Millisecond
	if len(all) == 0 {
		_, err := Say(w, "no calls in the last %s\n", Span(over))
		return errors.Join(err, Missing(w, m.GetMissing()))
	}
	left := 0
	if most > 0 && len(all) > most {
		left = len(all) - most
		all = all[:most]
	}
	heading := []string{"CALLER", "CALLEE", "CLUSTER", "VERSIONS", "CALLS/S", "SUCCESS", "P50", "P95", "P99", "SHARE", "NOW", "FAILS"}
	var table [][]string
	for _, e := range all {
		table = append(table, []string{
			callerOf(e), cmp.Or(Name(e.GetCallee()), "*"), ClusterOf(e), cmp.Or(e.GetVersions(), "-"), Rate(e), Success(e), ms(e.GetP50Ms()), ms(e.GetP95Ms()), ms(e.GetP99Ms()), ShareOf(e), count(e.GetUnderWay()), faultOf(e, m.GetToUnixMs()),
		})
	}
	for column, of := range map[string][]string{"CALLER": {"callee", "cluster"}, "CALLEE": {"caller", "cluster"}, "CLUSTER": {"pair", "caller", "callee"}, "SHARE": {"pair", "caller", "callee", "cluster"}} {
		if slices.Contains(of, by) {
			whole := without(append([][]string{heading}, table...), column)
			heading, table = whole[0], whole[1:]
		}
	}
	heading, table = said(heading, table, "VERSIONS")
	if err := rows(w, heading, table, "VERSIONS", "P95", "P50", "NOW", "SHARE"); err != nil {
		return err
	}
	var err error
	if left > 0 {
		_, err = Say(w, "and %d more\n", left)
	}
	return errors.Join(err, Missing(w, m.GetMissing()))
}

// Missing says which replicas of the service an answer lacks.
func Missing(w io.Writer, all []*v1alpha1.MissingReplica) (err error) {
	for _, m := range all {
		_, failed := Say(w, "not all calls: %s\n", catalog.Printable(MissingReplica(m)))
		err = errors.Join(err, failed)
	}
	return err
}

// MissingReplica says why an answer lacks a replica.
func MissingReplica(m *v1alpha1.MissingReplica) string {
	if m.GetAddress() == "" {
		return m.GetWhy()
	}
	return "the replica at " + m.GetAddress() + " does not answer: " + m.GetWhy()
}

func callerOf(e *v1alpha1.TrafficEdge) string {
	name := cmp.Or(Name(e.GetCaller()), "*")
	if e.GetByCallee() && e.GetCaller() == nil {
		name = "unknown"
	}
	if e.GetByCallee() && e.GetCallerCluster() != e.GetCluster() {
		return cmp.Or(e.GetCallerCluster(), "?") + ":" + name
	}
	return name
}

// ClusterOf is where calls go.
func ClusterOf(e *v1alpha1.TrafficEdge) string { return cmp.Or(e.GetCluster(), "nowhere") }

// Rate is how many calls a second there are.
func Rate(e *v1alpha1.TrafficEdge) string {
	switch r := e.GetCallsPerSecond(); {
	case r == 0:
		return "-"
	case r < 10:
		return fmt.Sprintf("%.2f", r)
	case r < 100:
		return fmt.Sprintf("%.1f", r)
	default:
		return fmt.Sprintf("%.0f", r)
	}
}

// Success is how many of the calls go well, never rounded up to all.
func Success(e *v1alpha1.TrafficEdge) string {
	switch s := e.GetSuccess(); {
	case e.Success == nil:
		return "-"
	case s == 1 || s == 0:
		return fmt.Sprintf("%.0f %%", 100*s)
	default:
		return fmt.Sprintf("%.2f %%", min(99.99, max(.01, 100*s)))
	}
}

// ShareOf is which part of a caller's calls to a callee goes to the cluster, and which part should.
func ShareOf(e *v1alpha1.TrafficEdge) string {
	if e.GetByCallee() || e.GetCallsPerSecond() == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.0f %%", 100*e.GetShare())
	if e.WantedShare != nil {
		text += fmt.Sprintf(" of %.0f", 100*e.GetWantedShare())
	}
	return text
}

func ms(ms float64) string {
	if ms == 0 { // no call, or none got as far as to take time
		return "-"
	}
	return Milliseconds(ms)
}

// Milliseconds is a latency with two digits or so.
func Milliseconds(ms float64) string {
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.0f s", ms/1000)
}

func faultOf(e *v1alpha1.TrafficEdge, now int64) string {
	f := e.GetFault()
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%s, for %s", cmp.Or(f.GetOutcome(), f.GetCheck()), age(f.GetSinceUnixMs(), time.UnixMilli(max(now, f.GetSinceUnixMs()))))
}

// TapBegins says whose calls will be shown.
func TapBegins(w io.Writer, m *v1alpha1.TapResponse) error {
	text := fmt.Sprintf("%d sidecars of this replica tell of their calls", m.GetSidecars())
	if n := m.GetUnable(); n > 0 {
		text += fmt.Sprintf("; %d are older than that and can't", n)
	}
	_, err := Say(w, "%s\n", text)
	return err
}

// Tap writes a line for each call.
func Tap(w io.Writer, m *v1alpha1.TapResponse, zone *time.Location) error {
	for _, c := range m.GetCalls() {
		seen, to := "caller", cmp.Or(c.GetCluster(), "nowhere")
		if c.GetByCallee() {
			seen = "callee"
		}
		if c.GetAddress() != "" {
			to += " " + c.GetAddress()
		}
		text := fmt.Sprintf("%s  %s  %s:%s -> %s  %s  %s", time.UnixMilli(c.GetAtUnixMs()).In(zone).Format("15:04:05.000"), seen,
			cmp.Or(c.GetCallerCluster(), "?"), cmp.Or(Name(c.GetCaller()), "unknown"), Name(c.GetCallee()), to, c.GetEnd())
		if c.GetCode() != "" && c.GetCode() != "OK" {
			text += " (" + c.GetCode() + ")"
		}
		text += "  " + Milliseconds(float64(c.GetTookUs())/1000)
		if n := c.GetAttempts(); n > 1 {
			text += fmt.Sprintf("  attempt %d", n)
		}
		for _, e := range c.GetEarlier() {
			text += fmt.Sprintf("  after %s %s: %s", e.GetCluster(), e.GetAddress(), e.GetFailed())
		}
		for _, p := range c.GetPassed() {
			if text += "  not " + p.GetCluster(); p.GetCluster() == "" {
				text = strings.TrimSuffix(text, "not ") + "nothing connected"
			}
			text += ": " + p.GetWhy()
		}
		if id := c.GetTraceId(); id != "" {
			text += "  trace " + id
		}
		if _, err := Say(w, "%s\n", catalog.Printable(text)); err != nil {
			return err
		}
	}
	if n := m.GetLeftOut(); n > 0 {
		_, err := Say(w, "and %d more\n", n)
		return err
	}
	return nil
}
