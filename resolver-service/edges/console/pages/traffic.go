package pages

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// window is a time before now that pages tell of calls in.
type window struct {
	Name, Text string // in an address, and for people
	over, step time.Duration
}

var windows = []window{
	{"1m", "now", time.Minute, 10 * time.Second},
	{"5m", "5 min", 5 * time.Minute, 10 * time.Second},
	{"1h", "1 h", time.Hour, 5 * time.Minute},
	{"24h", "24 h", 24 * time.Hour, 15 * time.Minute},
}

// windowOf is the time that was asked for, or the one of a name.
func windowOf(value func(string) string, usual string) (window, error) {
	name := value("over")
	if name == "" {
		name = usual
	}
	for _, w := range windows {
		if w.Name == name {
			return w, nil
		}
	}
	return window{}, refuse(http.StatusBadRequest, "over: want 1m, 5m, 1h or 24h, not %q", name)
}

// tab is a link to the same page in another form.
type tab struct {
	Text, Href string
	Chosen     bool
}

// windowTabs lead to the page of an address for each time; some have fewer.
func (w window) tabs(of []window, address func(over string) string) (all []tab) {
	for _, o := range of {
		all = append(all, tab{o.Text, address(o.Name), o.Name == w.Name})
	}
	return all
}

// mostEdges is how many edges a page reads, those with the most calls.
const mostEdges = 2000

// traffic asks for calls.
func (r *request) traffic(req *v1alpha1.TrafficRequest, w window) (*v1alpha1.TrafficResponse, error) {
	req.WindowMs, req.Most = uint64(w.over.Milliseconds()), mostEdges
	answer := &v1alpha1.TrafficResponse{}
	stream, err := v1alpha1.NewInventoryClient(r.Conn).Traffic(r.ctx, req)
	err = receive(stream, err, func(m *v1alpha1.TrafficResponse) {
		answer.FromUnixMs, answer.ToUnixMs, answer.Matched = m.GetFromUnixMs(), m.GetToUnixMs(), answer.GetMatched()+m.GetMatched()
		answer.Missing = append(answer.GetMissing(), m.GetMissing()...)
		answer.Edges = append(answer.GetEdges(), m.GetEdges()...)
	})
	return answer, err
}

// span is the time that an answer is about.
func span(m *v1alpha1.TrafficResponse) time.Duration {
	return time.Duration(m.GetToUnixMs()-m.GetFromUnixMs()) * time.Millisecond
}

// inAll sums traffic up by nothing.
const inAll = ""

// figures are all calls of an answer in a line; empty if there are none.
func figures(m *v1alpha1.TrafficResponse) string {
	all := show.GroupTraffic(m.GetEdges(), inAll, show.SortRate, m)
	if len(all) == 0 || all[0].Success == nil {
		return ""
	}
	sum := all[0]
	text := fmt.Sprintf("%s calls/s, %s go well, p50 %s, p95 %s, p99 %s, in the last %s", show.Rate(sum), show.Success(sum),
		show.Milliseconds(sum.GetP50Ms()), show.Milliseconds(sum.GetP95Ms()), show.Milliseconds(sum.GetP99Ms()), show.Span(span(m)))
	if left := int(m.GetMatched()) - len(m.GetEdges()); left > 0 {
		text += fmt.Sprintf("; without %d edges of few calls", left)
	}
	return text
}

// wayOf is a caller, its cluster, a callee and the cluster that calls of it go to, by the names that a
// picture has.
type wayOf struct{ in, caller, callee, to string }

// flow is the calls that take a way.
type flow struct {
	*v1alpha1.TrafficEdge
	counts traffic.Counts
}

// flows are the calls of a time by their ways. A nil one is a picture of no calls.
type flows struct {
	over time.Duration
	of   map[wayOf]*flow
}

// add adds calls to those of a way.
func (f *flows) add(at wayOf, e *v1alpha1.TrafficEdge) {
	one := f.of[at]
	if one == nil {
		one = &flow{TrafficEdge: &v1alpha1.TrafficEdge{Caller: e.GetCaller(), Callee: e.GetCallee(), CallerCluster: e.GetCallerCluster(), Cluster: e.GetCluster(), ByCallee: e.GetByCallee(), Share: e.GetShare(), WantedShare: e.WantedShare}}
		f.of[at] = one
	} else {
		one.Share, one.WantedShare = 0, nil // of several callers there is none
	}
	if counts, err := traffic.FromWire(e.GetTraffic()); err == nil {
		one.counts.Add(&counts)
	}
	one.UnderWay += e.GetUnderWay()
	if e.GetFault() != nil && (one.Fault == nil || one.GetFault().GetLevel() == "warn") {
		one.Fault = e.GetFault()
	}
	one.counts.SumUp(one.TrafficEdge, f.over)
	one.Traffic = one.counts.Wire()
}

// folded are the flows of a picture in which apps and clusters have other names.
func (f *flows) folded(app, cluster func(string) string) *flows {
	if f == nil {
		return nil
	}
	all := &flows{f.over, map[wayOf]*flow{}}
	for at, one := range f.of {
		to := wayOf{cluster(at.in), app(at.caller), app(at.callee), cluster(at.to)}
		if all.of[to] == nil {
			all.of[to] = &flow{TrafficEdge: one.TrafficEdge, counts: one.counts}
			continue
		}
		sum := &flow{TrafficEdge: &v1alpha1.TrafficEdge{UnderWay: all.of[to].GetUnderWay() + one.GetUnderWay(), Fault: all.of[to].GetFault()}, counts: all.of[to].counts}
		if sum.Fault == nil || sum.GetFault().GetLevel() == "warn" && one.GetFault() != nil {
			sum.Fault = one.GetFault()
		}
		sum.counts.Add(&one.counts)
		sum.counts.SumUp(sum.TrafficEdge, f.over)
		sum.Traffic = sum.counts.Wire()
		all.of[to] = sum
	}
	return all
}

// addTraffic adds calls to a graph: ways that no object declares, too. Calls of callers without a name
// are in no picture.
func addTraffic(g *v1alpha1.GraphResponse, m *v1alpha1.TrafficResponse) *flows {
	f := &flows{span(m), map[wayOf]*flow{}}
	type pair struct{ in, caller, callee string }
	calls := make(map[pair]int, len(g.GetCalls()))
	for i, c := range g.GetCalls() {
		calls[pair{c.GetIn(), show.Name(c.GetCaller()), show.Name(c.GetCallee())}] = i
	}
	for _, e := range m.GetEdges() {
		if e.GetCaller() == nil || e.GetCallee() == nil {
			continue
		}
		at := wayOf{e.GetCallerCluster(), show.Name(e.GetCaller()), show.Name(e.GetCallee()), e.GetCluster()}
		i, there := calls[pair{at.in, at.caller, at.callee}]
		if !there {
			i = len(g.Calls)
			calls[pair{at.in, at.caller, at.callee}] = i
			g.Calls = append(g.Calls, &v1alpha1.GraphCall{Caller: e.GetCaller(), In: at.in, Callee: e.GetCallee(), Seen: true, State: stateOf(e)})
		}
		call := g.Calls[i]
		if at.to == "" { // nothing was connected: the calls were for the first of the ways
			at.to = g.GetCluster()
			if len(call.GetRoutes()) > 0 {
				at.to = call.GetRoutes()[0].GetCluster()
			}
		}
		if !leads(call, at.to) {
			call = &v1alpha1.GraphCall{Caller: call.GetCaller(), In: call.GetIn(), Callee: call.GetCallee(), State: call.GetState(), Declared: call.GetDeclared(), Seen: true, Rule: call.GetRule(),
				Routes: append(call.GetRoutes()[:len(call.GetRoutes()):len(call.GetRoutes())], &v1alpha1.GraphRoute{Cluster: at.to, Weight: catalog.DefaultWeight, State: "ready", Usable: true, Taken: !there})}
			g.Calls[i] = call
		}
		f.add(at, e)
	}
	return f
}

func leads(c *v1alpha1.GraphCall, cluster string) bool {
	for _, r := range c.GetRoutes() {
		if r.GetCluster() == cluster {
			return true
		}
	}
	return false
}

// stateOf is the state of a call that no object declares.
func stateOf(e *v1alpha1.TrafficEdge) string {
	if counts, err := traffic.FromWire(e.GetTraffic()); err == nil && counts.Ends[traffic.Refused] > 0 && counts.Ends[traffic.Refused] == counts.Calls() {
		return "denied"
	}
	return "ready"
}

// The parts of calls that do not go well from which on a way is drawn as one with faults, and as
// one that fails. They are those of isthmus check.
const (
	partWrong = .01
	partDown  = .5
)

// health is how calls go: good, some that fail, or bad; empty without calls.
func health(e *v1alpha1.TrafficEdge) string {
	switch {
	case e.Success == nil && e.GetUnderWay() == 0:
		return ""
	case e.GetFault().GetLevel() == "fail", e.Success != nil && e.GetSuccess() <= 1-partDown:
		return "bad"
	case e.GetFault() != nil, e.Success != nil && e.GetSuccess() < 1-partWrong:
		return "some"
	}
	return "good"
}

// wide is how wide a way is drawn, 1 to 6: one more for thrice the calls, from one in ten seconds on.
func wide(e *v1alpha1.TrafficEdge) int {
	if e.GetCallsPerSecond() <= 0 {
		return 1
	}
	return max(1, min(6, 2+int(math.Floor(math.Log(e.GetCallsPerSecond()*2)/math.Log(4)))))
}

// brief is what stands at a way: rate and share, and how slow the slowest are.
func brief(e *v1alpha1.TrafficEdge) (lines [2]string) {
	lines[0] = show.Rate(e) + "/s"
	if e.GetShare() > 0 && e.GetShare() < 1 {
		lines[0] += fmt.Sprintf(" · %.0f %%", 100*e.GetShare())
	}
	switch {
	case e.GetP99Ms() > 0:
		lines[1] = "p99 " + show.Milliseconds(e.GetP99Ms())
	case e.Success != nil:
		lines[1] = worstEnd(e)
	}
	return lines
}

// worstEnd is how most of the calls end that do not go well; empty where all do.
func worstEnd(e *v1alpha1.TrafficEdge) string {
	worst, most := "", uint64(0)
	for end, n := range e.GetTraffic().GetEnds() {
		if end := traffic.End(end); !end.Good() && end.Counted() && n > most {
			worst, most = end.String(), n
		}
	}
	return worst
}

// inFull are the figures of a way.
func inFull(e *v1alpha1.TrafficEdge) string {
	parts := []string{show.Rate(e) + " calls/s"}
	if e.Success != nil {
		parts = append(parts, show.Success(e)+" go well")
		if worst := worstEnd(e); worst != "" {
			parts = append(parts, "the others mostly "+worst)
		}
	}
	if e.GetP99Ms() > 0 {
		parts = append(parts, "p50 "+show.Milliseconds(e.GetP50Ms()), "p95 "+show.Milliseconds(e.GetP95Ms()), "p99 "+show.Milliseconds(e.GetP99Ms()))
	}
	if share := show.ShareOf(e); e.GetShare() > 0 && share != "-" {
		parts = append(parts, "share "+share)
	}
	if n := e.GetUnderWay(); n > 0 {
		parts = append(parts, fmt.Sprint(n, " under way"))
	}
	return strings.Join(parts, ", ")
}

// failing is how calls fail; empty where all go well.
func failing(e *v1alpha1.TrafficEdge) string {
	if f := e.GetFault(); f != nil {
		return f.GetOutcome() + ": " + f.GetWhy()
	}
	return worstEnd(e)
}

// ms is a latency; "-" where none is known.
func ms(of float64) string {
	if of == 0 {
		return "-"
	}
	return show.Milliseconds(of)
}
