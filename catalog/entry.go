package catalog

import (
	"slices"
	"strconv"
)

// Rule is why a caller may see an app: an endpoint of its selection or, without a selection, the
// cluster's default.
type Rule struct {
	Selection *AppEndpoints // nil for DefaultRule, and if only Text is known
	Index     int32         // of the endpoint in Selection.Endpoints
	text      *string       // see TextRule; there are many rules, and few have a text
}

// TextRule is the rule whose String is the text; DefaultRule if that is empty.
func TextRule(text string) Rule {
	if text == "" {
		return Rule{}
	}
	return Rule{text: &text}
}

// Same tells whether two rules are equal.
func (r Rule) Same(o Rule) bool {
	return r == o || r.Selection == o.Selection && r.Index == o.Index && r.text != nil && o.text != nil && *r.text == *o.text
}

// The rules that come from no object: the two default selections, and that of an app that looks
// itself up.
const (
	DefaultRule = "defaultSelection: local"
	ClosedRule  = "defaultSelection: none"
	SelfRule    = "an app may always call itself"
)

// String names the object and its line. It runs for every entry that is sent to a sidecar, so it
// is hand-written.
func (r Rule) String() string {
	s := r.Selection
	switch {
	case r.text != nil:
		return *r.text
	case s == nil || int(r.Index) >= len(s.Endpoints):
		return DefaultRule
	case s.Declared:
		return s.From[r.Index] + ", " + s.Endpoints[r.Index].App.String()
	}
	var room [160]byte
	b := append(room[:0], KindAppEndpoints...)
	app := s.object()
	b = append(append(b, ' '), app.Namespace...)
	b = append(append(b, '/'), app.ID...)
	b = append(strconv.AppendInt(append(b, ", spec.endpoints["...), int64(r.Index), 10), "] ("...)
	if s.From != nil {
		return string(b) + s.OriginOf(int(r.Index)).String() + ")"
	}
	if s.Source.File == "" {
		b = append(b, "line "...)
	} else {
		b = append(append(b, s.Source.File...), ':')
	}
	return string(append(strconv.AppendInt(b, int64(s.Endpoints[r.Index].Line), 10), ')'))
}

// Entry is one app in a view: a plan, and the rule that lets the caller see it. It is immutable.
type Entry struct {
	*Plan
	Rule Rule
	Own  *Own // nil for most
}

// Own is what an entry has that the plan, which callers share, has not.
type Own struct {
	Name  App // by which the caller calls the app; zero: the app's own
	Hash  Hash
	Takes []TakenRoute // in order; mostly none
}

// For is what the entry of an endpoint has of its own for a caller; nil for nothing.
func (e *Endpoint) For(caller App) *Own {
	if e.As == "" && e.Hash == (Hash{}) {
		return nil
	}
	o := &Own{Hash: e.Hash.By(caller)}
	if e.As != "" {
		o.Name = e.Name(caller)
	}
	return o
}

// Name is the app by whose name the caller calls: the key of the entry in its view.
func (e *Entry) Name() App {
	if e.Own == nil || e.Own.Name == (App{}) {
		return e.App
	}
	return e.Own.Name
}

// Hash says which calls go to the same instance.
func (e *Entry) Hash() Hash {
	if e.Own == nil {
		return Hash{}
	}
	return e.Own.Hash
}

// Takes are the routes to guests that take calls of the caller.
func (e *Entry) Takes() []TakenRoute {
	if e.Own == nil {
		return nil
	}
	return e.Own.Takes
}

// Awaited tells whether a lookup waits: no route takes its call, and a cluster that was asked for the
// app is about to answer.
func (e *Entry) Awaited() bool { return e.Outcome() == NotReady && !e.takenNow() }

// AwaitedIn is [Entry.Awaited] for a lookup that names a cluster; empty for one that names none.
func (e *Entry) AwaitedIn(cluster string) bool {
	if cluster == "" {
		return e.Awaited()
	}
	return slices.ContainsFunc(e.Routes, func(r Route) bool { return r.Cluster == cluster && r.State == Asked })
}

// NewEntry makes an entry with a plan of its own.
func NewEntry(app App, rule Rule, routes []Route) *Entry {
	return &Entry{Plan: NewPlan(app, routes), Rule: rule}
}

// Same tells whether two entries lead to the same decisions by the same rule.
func (e *Entry) Same(o *Entry) bool {
	return e == o || e.Rule.Same(o.Rule) && e.Name() == o.Name() && e.Hash() == o.Hash() && e.SameRoutes(o)
}

// SameRoutes tells whether two entries lead to the same decisions.
func (e *Entry) SameRoutes(o *Entry) bool { return e.Plan.Same(o.Plan) && e.sameTakes(o) }
