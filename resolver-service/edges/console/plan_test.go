package console_test

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/consoletest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// lookup is what one app asks for.
type lookup struct{ caller, app catalog.App }

// lookups makes every lookup of west.
func (w *world) lookups() map[lookup]*v1alpha1.Decision {
	all := map[lookup]*v1alpha1.Decision{}
	var mu sync.Mutex
	var callers sync.WaitGroup
	for _, caller := range asked {
		callers.Go(func() {
			for _, app := range asked {
				d := w.west.resolve("", caller, app)
				mu.Lock()
				all[lookup{caller, app}] = d
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	return all
}

// differs tells whether a caller would see a difference: another outcome, or other shares. An app that is
// in no selection, before or after, is not found or denied; there is no end of such names.
func differs(was, is *v1alpha1.Decision) bool {
	held := func(d *v1alpha1.Decision) bool { return d.GetOutcome() != "not found" && d.GetOutcome() != "denied" }
	if !held(was) && !held(is) {
		return false
	}
	if was.GetOutcome() != is.GetOutcome() {
		return true
	}
	return was.GetOutcome() == "ok" && !slices.EqualFunc(shares(was), shares(is), func(a, b *v1alpha1.RouteDecision) bool {
		return a.GetCluster() == b.GetCluster() && math.Abs(a.GetShare()-b.GetShare()) < 0.01
	})
}

// ramping tells whether what has come back takes its share step by step.
func ramping(d *v1alpha1.Decision) bool {
	return slices.ContainsFunc(d.GetRoutes(), func(r *v1alpha1.RouteDecision) bool { return r.GetRamp() != 0 })
}

func shares(d *v1alpha1.Decision) []*v1alpha1.RouteDecision {
	all := slices.DeleteFunc(slices.Clone(d.GetRoutes()), func(r *v1alpha1.RouteDecision) bool { return r.GetShare() == 0 })
	slices.SortFunc(all, func(a, b *v1alpha1.RouteDecision) int { return cmp.Compare(a.GetCluster(), b.GetCluster()) })
	return all
}

// effect is a row of the plan's table.
type effect struct{ caller, app, now, then string }

// effects are the rows of a plan, and "any without a selection" for apps that follow the cluster's default.
func effects(t *testing.T, page *consoletest.Page) map[[2]string]effect {
	t.Helper()
	if strings.Contains(page.Text(), "more are not listed") {
		t.Fatal("the plan leaves out effects; the world is too large for this test")
	}
	all := map[[2]string]effect{}
	for _, row := range page.All("data-field", "effect") {
		text := func(name string) string { return row.All("data-field", name)[0].Text() }
		e := effect{text("caller"), text("app"), text("before"), text("after")}
		all[[2]string{e.caller, e.app}] = e
	}
	return all
}

const anyApp = "any without a selection"

// undecided are apps that have no selection, by an object of their own or a default.
func (w *world) undecided() map[catalog.App]bool {
	all := map[catalog.App]bool{}
	for _, app := range asked {
		all[app] = true
		for _, by := range []catalog.App{app, {Namespace: app.Namespace, ID: catalog.DefaultName}, {Namespace: catalog.DefaultName, ID: catalog.DefaultName}} {
			if o, _ := w.west.object(selectionKey(by)); o != nil {
				all[app] = false
			}
		}
	}
	return all
}

func selectionKey(app catalog.App) catalog.Key {
	return catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: app.Namespace, Name: app.ID}
}

// tried is what was planned, with what was before.
type tried struct {
	page      *consoletest.Page
	effects   map[[2]string]effect
	before    map[lookup]*v1alpha1.Decision
	undecided map[catalog.App]bool
}

// happened holds what lookups do after a change to what its plan listed.
func (w *world) happened(what string, p *tried) (changed int) {
	w.t.Helper()
	after, undecided := w.lookups(), w.undecided()
	listed := map[[2]string]bool{}
	for l, was := range p.before {
		if slices.Contains(unknown, l.caller) && !(p.undecided[l.caller] && undecided[l.caller]) {
			continue // it follows a default, and no plan can name an app that does not run and has no object
		}
		is := after[l]
		at := [2]string{l.caller.String(), l.app.String()}
		e, ok := p.effects[at]
		if !ok && p.undecided[l.caller] && undecided[l.caller] {
			at[0] = anyApp
			e, ok = p.effects[at]
		}
		listed[at] = true
		if ramping(was) || ramping(is) {
			continue // its shares change by themselves, and no plan can tell by how much
		}
		if differs(was, is) != ok {
			w.t.Fatalf("%s: %s asks for %s: listed %v (%v), and it was\n  %+v\n  and is\n  %+v", what, l.caller, l.app, ok, e, was, is)
		}
		if !ok {
			continue
		}
		changed++
		want := &v1alpha1.Effect{Before: was, After: is}
		if !sameText(e.now, show.Now(want)) || !sameText(e.then, show.Then(want)) {
			w.t.Fatalf("%s: %s asks for %s: the plan says %q, then %q; it was %q, and is %q", what, l.caller, l.app, e.now, e.then, show.Now(want), show.Then(want))
		}
	}
	for at, e := range p.effects {
		if !listed[at] && slices.ContainsFunc(asked, func(app catalog.App) bool { return app.String() == at[1] }) && at[0] != anyApp {
			w.t.Fatalf("%s: the plan lists %v, and nobody asks so", what, e)
		}
	}
	return changed
}

// sameText compares two texts but for reasons, which tell on which way one lookup fell.
func sameText(a, b string) bool {
	a, _, _ = strings.Cut(a, ": ")
	b, _, _ = strings.Cut(b, ": ")
	return a == b
}

// try plans objects. The page must have no mistakes.
func (w *world) try(objects ...catalog.Object) *tried {
	w.t.Helper()
	var text []string
	for _, o := range objects {
		text = append(text, string(api.EncodeYAML(o)))
	}
	form := w.page("/plan").Form("/plan")
	form.Set("text", strings.Join(text, "---\n"))
	return w.planned(w.post("/plan", form))
}

// tryDelete plans the deletion of an object.
func (w *world) tryDelete(key catalog.Key) *tried {
	w.t.Helper()
	return w.planned(w.get("/plan?delete=" + url.QueryEscape(named(key))))
}

func named(key catalog.Key) string { return strings.TrimPrefix(api.KeyPath(key), api.KeyPrefix) }

func (w *world) planned(page *consoletest.Page) *tried {
	w.t.Helper()
	if page.Status != http.StatusOK {
		w.t.Fatalf("the plan: status %d: %s", page.Status, page.Text())
	}
	return &tried{page, effects(w.t, page), w.lookups(), w.undecided()}
}

// carryOut sends the form of what was planned.
func (w *world) carryOut(p *tried) *consoletest.Page {
	w.t.Helper()
	form := p.page.Form("/plan/apply")
	if form == nil {
		w.t.Fatalf("the plan can't be applied: %s", p.page.Text())
	}
	return w.post("/plan/apply", form)
}

// change is a random change of one or two objects: what is written, or else deleted.
func (w *world) change() (what string, objects []catalog.Object, gone catalog.Key) {
	caller := one(w, apps)
	switch n := w.IntN(100); {
	case n < 35: // other weights, or an endpoint more or less
		s, ok := w.stored(selectionKey(caller)).(*catalog.AppEndpoints)
		if !ok {
			return "a new selection of " + caller.String(), []catalog.Object{w.selection(caller)}, gone
		}
		return "a part of " + caller.String(), []catalog.Object{w.altered(s)}, gone
	case n < 50:
		return "another selection of " + caller.String(), []catalog.Object{w.selection(caller)}, gone
	case n < 60:
		other := one(w, apps)
		if other == caller {
			return "another selection", []catalog.Object{w.selection(caller)}, gone
		}
		return "two selections", []catalog.Object{w.selection(caller), w.selection(other)}, gone
	case n < 72:
		by := catalog.App{Namespace: one(w, []string{"shop", "bank", catalog.DefaultName}), ID: catalog.DefaultName}
		if w.stored(selectionKey(by)) != nil {
			return "no default " + by.String(), nil, selectionKey(by)
		}
		return "a default " + by.String(), []catalog.Object{w.selection(by)}, gone
	case n < 80:
		return "an export of " + caller.String(), []catalog.Object{w.export(caller)}, gone
	case n < 90:
		key := catalog.Key{Kind: catalog.KindCluster, Name: "nowhere"}
		if w.stored(key) != nil {
			return "no cluster nowhere", nil, key
		}
		return "a cluster nowhere", []catalog.Object{&catalog.Cluster{Name: "nowhere", Gateways: []string{"127.0.0.1:1"}, StaleAfter: time.Minute}}, gone
	}
	if w.stored(selectionKey(caller)) == nil {
		return "a selection of " + caller.String(), []catalog.Object{w.selection(caller)}, gone
	}
	return "no selection of " + caller.String(), nil, selectionKey(caller)
}

func (w *world) stored(key catalog.Key) catalog.Object {
	o, _ := w.west.object(key)
	return o
}

// altered is a selection with one endpoint more, less, or otherwise.
func (w *world) altered(s *catalog.AppEndpoints) *catalog.AppEndpoints {
	next := &catalog.AppEndpoints{App: s.App, Endpoints: slices.Clone(s.Endpoints)}
	i := w.IntN(len(next.Endpoints))
	switch {
	case w.chance(25) && len(next.Endpoints) > 1:
		next.Endpoints = slices.Delete(next.Endpoints, i, i+1)
	case w.chance(25):
		callee := one(w, asked)
		if callee != s.App && !slices.ContainsFunc(next.Endpoints, func(e catalog.Endpoint) bool { return e.App == callee }) {
			next.Endpoints = append(next.Endpoints, w.endpoint(callee))
			break
		}
		fallthrough
	default:
		next.Endpoints[i] = w.endpoint(next.Endpoints[i].App)
	}
	return next
}

// What a plan lists is what lookups do once it is applied: all of it, and nothing else.
func TestAPlanTellsWhatLookupsDoAfterIt(t *testing.T) {
	w := newWorld(t, 4)
	w.populate()
	w.troubles()
	// Shares of what has come back change by themselves, and no plan can tell that.
	w.west.apply(&catalog.Cluster{Name: "east", Gateways: []string{w.east.gateway}, StaleAfter: time.Minute, RampUp: 0})
	w.west.hears(w.east, "connected")
	total, without, deleted := 0, 0, 0
	changes := raced.Fewer(100)
	for i := range changes {
		what, objects, gone := w.change()
		if i == 70 {
			what, objects, gone = "no cluster north", nil, catalog.Key{Kind: catalog.KindCluster, Name: "north"}
		}
		what = fmt.Sprintf("change %d: %s", i, what)
		var p *tried
		if objects != nil {
			p = w.try(objects...)
		} else {
			p = w.tryDelete(gone)
			deleted++
		}
		if strings.Contains(p.page.Text(), "unchanged") && len(objects) == 1 {
			continue
		}
		if done := w.carryOut(p); done.Status != http.StatusOK || !strings.Contains(done.Text(), "Done.") {
			t.Fatalf("%s: status %d: %s", what, done.Status, done.Text())
		}
		n := w.happened(what, p)
		total += n
		if n == 0 {
			without++
		}
	}
	t.Logf("%d changes, %d of them deletions: %d lookups changed as listed; %d changes without any", changes, deleted, total, without)
	if changes == 100 && (total < 200 || without == 0 || deleted < 5) {
		t.Errorf("%d lookups changed, by all but %d changes, with %d deletions: this says too little", total, without, deleted)
	}
}

// What somebody else has changed since it was shown is not overwritten, and not deleted.
func TestWhatChangedInBetweenIsNotOverwritten(t *testing.T) {
	w := newWorld(t, 5)
	w.populate()
	first, second := apps[0], apps[1]
	w.west.apply(w.selection(first), w.selection(second))
	mine, theirs := w.altered(w.stored(selectionKey(first)).(*catalog.AppEndpoints)), w.selection(second)
	p := w.try(mine, w.altered(w.stored(selectionKey(second)).(*catalog.AppEndpoints)))
	w.west.apply(theirs)
	w.refuses("a plan of two objects, one of which is another now", p, selectionKey(first), selectionKey(second))

	missing := catalog.App{Namespace: "shop", ID: "newcomer"}
	p = w.try(w.selection(missing))
	w.west.apply(w.selection(missing))
	w.refuses("a plan of a new object, which is there now", p, selectionKey(missing))

	p = w.tryDelete(selectionKey(second))
	w.west.apply(w.altered(theirs))
	w.refuses("a deletion of an object that is another now", p, selectionKey(second))

	p = w.tryDelete(selectionKey(second))
	form := p.page.Form("/plan/apply")
	form.Del("pin")
	if page := w.post("/plan/apply", form); page.Status != http.StatusBadRequest || w.stored(selectionKey(second)) == nil {
		t.Errorf("a deletion that was shown to nobody: status %d: %s", page.Status, page.Text())
	}
	if page := w.carryOut(p); page.Status != http.StatusOK || w.stored(selectionKey(second)) != nil {
		t.Errorf("a deletion of what was shown: status %d: %s", page.Status, page.Text())
	}
	w.happened("a deletion", p)
}

// refuses holds the console to 409, and to what the store has.
func (w *world) refuses(what string, p *tried, keys ...catalog.Key) {
	w.t.Helper()
	var before []string
	for _, key := range keys {
		_, revision := w.west.object(key)
		before = append(before, revision)
	}
	page := w.carryOut(p)
	if page.Status != http.StatusConflict || !strings.Contains(page.Text(), "Begin again with what is stored now") {
		w.t.Errorf("%s: status %d: %s", what, page.Status, page.Text())
	}
	for i, key := range keys {
		if _, now := w.west.object(key); now != before[i] {
			w.t.Errorf("%s: %s was at %s and is at %s", what, key, before[i], now)
		}
	}
	for _, a := range page.Elements("a") {
		if a.Text() == "Begin again with what is stored now" {
			w.page(a.Attr("href"))
		}
	}
}

// An object's page leads back to what it was.
func TestUndoBringsBackWhatWas(t *testing.T) {
	w := newWorld(t, 6)
	w.populate()
	app := apps[2]
	first := w.selection(app)
	w.west.apply(first)
	_, revision := w.west.object(selectionKey(app))
	before := w.lookups()
	if done := w.carryOut(w.try(w.altered(first))); done.Status != http.StatusOK {
		t.Fatalf("status %d: %s", done.Status, done.Text())
	}
	undo := ""
	for _, a := range w.page("/objects/" + named(selectionKey(app))).Elements("a") {
		if to, err := url.Parse(a.Attr("href")); err == nil && to.Query().Get("restore") != "" && to.Query().Get("revision") == revision {
			undo = a.Attr("href")
		}
	}
	if undo == "" {
		t.Fatalf("the object's page leads to no plan for revision %s", revision)
	}
	p := w.planned(w.post("/plan", w.page(undo).Form("/plan")))
	if done := w.carryOut(p); done.Status != http.StatusOK {
		t.Fatalf("status %d: %s", done.Status, done.Text())
	}
	w.happened("undo", p)
	if got, want := string(api.EncodeYAML(w.stored(selectionKey(app)))), string(api.EncodeYAML(first)); got != want {
		t.Errorf("undone, it is\n%s\nand was\n%s", got, want)
	}
	for l, is := range w.lookups() {
		if was := before[l]; differs(was, is) {
			t.Errorf("%s asks for %s: it was %+v, and is %+v", l.caller, l.app, was, is)
		}
	}
}
