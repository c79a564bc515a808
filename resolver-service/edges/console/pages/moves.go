package pages

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// moves are calls of the last hour that a change would have end in another way.
type moves struct {
	Over  string
	List  []move
	More  int // that are not listed
	Fails float64
	Other float64 // that would be answered elsewhere, in calls a second
	rates map[[2]string]float64
}

// move is calls of one app to one other.
type move struct {
	Caller, App string
	Text        string
	Level       string // as marks have it
	rate        float64
}

// mostMoves is how many moves a plan lists, and mostEffects how many lookups.
const (
	mostMoves   = 20
	mostEffects = 80
)

// weigh tells which calls of the last hour a change would move.
func weigh(r *request, answer *v1alpha1.ApplyResponse) (*moves, error) {
	if len(answer.GetEffects())+len(answer.GetExports()) == 0 {
		return nil, nil
	}
	calls, err := r.traffic(&v1alpha1.TrafficRequest{}, windows[2])
	if err != nil {
		return nil, err
	}
	own, _ := r.watch.newest()
	m := &moves{Over: show.Span(span(calls)), rates: map[[2]string]float64{}}
	for _, e := range calls.GetEdges() {
		if e.GetCaller() != nil && e.GetCallerCluster() == own {
			m.rates[[2]string{show.Name(e.GetCaller()), show.Name(e.GetCallee())}] += e.GetCallsPerSecond()
		}
	}
	for _, e := range answer.GetEffects() {
		m.effect(e)
	}
	for _, e := range answer.GetExports() {
		m.export(e, calls, own)
	}
	slices.SortStableFunc(m.List, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(b.rate, a.rate)) // fail comes before ok and warn
	})
	if n := len(m.List); n > mostMoves {
		m.List, m.More = m.List[:mostMoves], n-mostMoves
	}
	return m, nil
}

// rate is how many calls a second a lookup's caller makes; empty where none is known.
func (m *moves) rate(e *v1alpha1.Effect) string {
	if m == nil || m.rates[[2]string{show.Name(e.GetCaller()), show.Name(e.GetApp())}] == 0 {
		return ""
	}
	return rate(m.rates[[2]string{show.Name(e.GetCaller()), show.Name(e.GetApp())}])
}

// effect adds the calls whose lookup would end in another way.
func (m *moves) effect(e *v1alpha1.Effect) {
	caller, app := show.Name(e.GetCaller()), show.Name(e.GetApp())
	calls := m.rates[[2]string{caller, app}]
	if calls == 0 {
		return
	}
	one := move{Caller: caller, App: app, rate: calls}
	was, is := e.GetBefore().GetOutcome() == catalog.OK.String(), e.GetAfter().GetOutcome() == catalog.OK.String()
	switch {
	case was && !is:
		one.Level, one.Text = "fail", fmt.Sprintf("%s calls/s would fail: %s", rate(calls), e.GetAfter().GetReason())
		m.Fails += calls
	case is && !was:
		one.Level, one.Text = "ok", rate(calls)+" calls/s that fail would be answered"
	case is:
		moved, from, to := moved(e)
		if moved == 0 {
			return
		}
		one.rate = moved * calls
		one.Level, one.Text = "warn", fmt.Sprintf("%s of %s calls/s would go to %s instead of %s", rate(one.rate), rate(calls), strings.Join(to, " and "), strings.Join(from, " and "))
		m.Other += one.rate
	default:
		one.Level, one.Text = "warn", rate(calls)+" calls/s would fail for another reason"
	}
	m.List = append(m.List, one)
}

// moved is which part of calls would be answered in another cluster, 0 to 1, and in which.
func moved(e *v1alpha1.Effect) (part float64, from, to []string) {
	shares := map[string]float64{}
	for _, r := range e.GetBefore().GetRoutes() {
		shares[r.GetCluster()] -= r.GetShare() / 100
	}
	for _, r := range e.GetAfter().GetRoutes() {
		shares[r.GetCluster()] += r.GetShare() / 100
	}
	for cluster, more := range shares {
		switch {
		case more > .001:
			part, to = part+more, append(to, cluster)
		case more < -.001:
			from = append(from, cluster)
		}
	}
	slices.Sort(from)
	slices.Sort(to)
	if len(from) == 0 || len(to) == 0 {
		return 0, nil, nil
	}
	return part, from, to
}

// export adds the calls of callers elsewhere that would lose an app.
func (m *moves) export(e *v1alpha1.ExportEffect, calls *v1alpha1.TrafficResponse, own string) {
	in := e.GetCluster()
	if in == catalog.LocalCluster {
		return // they are among the lookups
	}
	lost := func(caller string) bool {
		return slices.ContainsFunc(e.GetRemoved(), func(pattern string) bool {
			namespace, id, _ := strings.Cut(pattern, "/")
			n, i, _ := strings.Cut(caller, "/")
			return (namespace == "*" || namespace == n) && (id == "*" || id == i)
		})
	}
	for _, edge := range calls.GetEdges() {
		caller := show.Name(edge.GetCaller())
		if !edge.GetByCallee() || edge.GetCallerCluster() != in || in == own || show.Name(edge.GetCallee()) != show.Name(e.GetApp()) || !lost(caller) || edge.GetCallsPerSecond() == 0 {
			continue
		}
		m.Fails += edge.GetCallsPerSecond()
		m.List = append(m.List, move{Caller: caller, App: show.Name(e.GetApp()), Level: "fail", rate: edge.GetCallsPerSecond(), Text: rate(edge.GetCallsPerSecond()) + " calls/s from cluster " + in + " would be refused"})
	}
}

// sum says all of it in a line.
func (m *moves) sum() string {
	var parts []string
	if m.Fails > 0 {
		parts = append(parts, rate(m.Fails)+" calls/s would fail")
	}
	if m.Other > 0 {
		parts = append(parts, rate(m.Other)+" calls/s would go elsewhere")
	}
	if len(parts) == 0 {
		return "By the calls of the last " + m.Over + ", no call would fail or go elsewhere, as far as sidecars tell."
	}
	return "By the calls of the last " + m.Over + ", " + strings.Join(parts, " and ") + "."
}

// coloured is a difference line by line, each with the class of what it does.
func coloured(diff string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		for line := range strings.Lines(plain(diff)) {
			class := ""
			switch {
			case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "@@"):
				class = "head"
			case strings.HasPrefix(line, "+"):
				class = "add"
			case strings.HasPrefix(line, "-"):
				class = "del"
			}
			var err error
			if class == "" {
				_, err = io.WriteString(w, templ.EscapeString(line))
			} else {
				_, err = fmt.Fprintf(w, `<span class="%s">%s</span>`, class, templ.EscapeString(line))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
