package nameresolution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/tracing"
)

// neighbourhood stands for a local resolver and what it finds, on a fake clock.
type neighbourhood struct {
	t     *testing.T
	r     *Resolver
	takes time.Duration // each answer

	mu      sync.Mutex // of what follows, while others run
	finds   map[catalog.App][]string
	err     error            // of every answer
	refuses map[string]error // what connecting to an address ends with
	asked   map[catalog.App]int
	asking  map[catalog.App]bool
	most    int // questions under way at a time
	checked []string
}

func (n *neighbourhood) Find(ctx context.Context, app catalog.App, _ int) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking[app] {
		n.t.Errorf("%s is asked for twice at a time", app)
	}
	n.asking[app] = true
	n.asked[app]++
	under := 0
	for _, is := range n.asking {
		if is {
			under++
		}
	}
	n.most = max(n.most, under)
	n.mu.Unlock()
	select {
	case <-time.After(n.takes):
	case <-ctx.Done():
	}
	n.mu.Lock()
	n.asking[app] = false
	return slices.Clone(n.finds[app]), n.err
}

func (n *neighbourhood) Close() error { return nil }

func (n *neighbourhood) connect(_ context.Context, address string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.checked = append(n.checked, address)
	return n.refuses[address]
}

const away = "orders.shop.east.isthmus.internal:15443"

// in runs a test on a fake clock, of checkout's component where its selection has these
// endpoints; without any it has none. East can be reached.
func in(t *testing.T, test func(t *testing.T, n *neighbourhood), endpoints ...catalog.Endpoint) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Logger: quiet})
		r.self, r.own, r.cluster, r.timeout = Instance{App: checkout, Port: 50001}, "10.0.0.9:50001", "west", time.Second
		r.lookups, r.contact = tracing.NewLookups("west", checkout, r.opts.SpanFromContext), newContact(quiet, "config store")
		n := &neighbourhood{
			t: t, r: r, takes: 100 * time.Millisecond, finds: map[catalog.App][]string{}, refuses: map[string]error{},
			asked: map[catalog.App]int{}, asking: map[catalog.App]bool{},
		}
		r.connect = n.connect
		ctx, end := context.WithCancel(t.Context())
		r.end = end
		r.locals = newLocals(ctx, r, n)
		change := configstore.Change{Full: true, Objects: []configstore.Stored{{Object: clusterAt("east", "203.0.113.7:15443")}}}
		if len(endpoints) > 0 {
			change.Objects = append(change.Objects, configstore.Stored{Object: &catalog.AppEndpoints{App: checkout, Endpoints: endpoints}})
		}
		p := &plan{app: checkout, cluster: "west", domain: catalog.DefaultDomain}
		p.take(change)
		r.locals.rebase(p.view())
		test(t, n)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// now changes what is the case.
func (n *neighbourhood) now(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// leads wants a lookup to end with an address, or an error that begins like that, at once.
func (n *neighbourhood) leads(app catalog.App, want ...string) {
	n.t.Helper()
	n.waits(app, 0, want...)
}

// waits wants a lookup to take so long.
func (n *neighbourhood) waits(app catalog.App, wait time.Duration, want ...string) {
	n.t.Helper()
	defer synctest.Wait()
	begun := time.Now()
	address, err := n.r.ResolveID(n.t.Context(), app)
	if err != nil {
		address = err.Error()
	}
	if !slices.ContainsFunc(want, func(w string) bool { return address == w || err != nil && strings.HasPrefix(address, w) }) {
		n.t.Errorf("%s leads to %q, want %q", app, address, want)
	}
	if took := time.Since(begun); took != wait {
		n.t.Errorf("the lookup of %s took %s, want %s", app, took, wait)
	}
}

// uses looks an app up each second for a while.
func (n *neighbourhood) uses(app catalog.App, d time.Duration) {
	n.t.Helper()
	for ; d > 0; d -= time.Second {
		_, _ = n.r.ResolveID(n.t.Context(), app)
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

func anywhere(app catalog.App) catalog.Endpoint { return catalog.Endpoint{App: app} }

func onlyHere(app catalog.App) catalog.Endpoint {
	return catalog.Endpoint{App: app, Routes: []catalog.RouteSpec{route("local", 0)}}
}

func TestOnlyTheFirstLookupWaitsForTheLocalResolver(t *testing.T) {
	for what, test := range map[string]struct {
		takes time.Duration
		found string
		to    catalog.Endpoint
		waits time.Duration
		leads string
		then  string // once the answer is there
	}{
		"it answers soon":             {100 * time.Millisecond, "10.0.0.1:1", anywhere(orders), 100 * time.Millisecond, "10.0.0.1:1", "10.0.0.1:1"},
		"it answers late":             {2 * time.Second, "10.0.0.1:1", anywhere(orders), firstWait, away, "10.0.0.1:1"},
		"it finds nothing":            {2 * time.Second, "", anywhere(orders), firstWait, away, away},
		"there is no other route":     {2 * time.Second, "10.0.0.1:1", onlyHere(orders), 2 * time.Second, "10.0.0.1:1", "10.0.0.1:1"},
		"nor does it find anything":   {2 * time.Second, "", onlyHere(orders), 2 * time.Second, "unavailable: ", "unavailable: "},
		"the other route comes first": {2 * time.Second, "10.0.0.1:1", catalog.Endpoint{App: orders, Routes: []catalog.RouteSpec{route("east", 0), route("local", 1)}}, 0, away, away},
	} {
		t.Run(what, func(t *testing.T) {
			in(t, func(t *testing.T, n *neighbourhood) {
				n.now(func() { n.takes = test.takes })
				if test.found != "" {
					n.now(func() { n.finds[orders] = []string{test.found} })
				}
				n.waits(orders, test.waits, test.leads)
				time.Sleep(test.takes)
				synctest.Wait()
				for range 100 {
					n.leads(orders, test.then)
				}
				n.uses(orders, time.Minute)
				n.leads(orders, test.then)
				if asked := n.asked[orders]; asked < 10 || asked > 21 {
					t.Errorf("asked %d times in a minute of lookups", asked)
				}
			}, test.to)
		})
	}
}

func TestWhatComesAndGoesIsFoundWhileTheAppIsInUse(t *testing.T) {
	in(t, func(t *testing.T, n *neighbourhood) {
		n.waits(orders, n.takes, away)
		_, changed := n.r.View()
		n.now(func() { n.finds[orders] = []string{"10.0.0.1:1", "10.0.0.2:1"} })
		n.uses(orders, 5*time.Second)
		select {
		case <-changed:
		default:
			t.Error("nobody is told that the view has changed")
		}
		by := map[string]int{}
		for range 100 {
			address, _ := n.r.ResolveID(t.Context(), orders)
			by[address]++
		}
		if by["10.0.0.1:1"] < 45 || by["10.0.0.2:1"] < 45 {
			t.Errorf("lookups are not shared out: %v", by)
		}
		// One answer by chance, or a lost packet, drops nothing; several do.
		n.now(func() { n.finds[orders] = []string{"10.0.0.2:1"} })
		n.uses(orders, 4*time.Second)
		n.now(func() { n.finds[orders] = []string{"10.0.0.1:1", "10.0.0.2:1"} })
		n.uses(orders, 4*time.Second)
		n.leads(orders, "10.0.0.1:1", "10.0.0.2:1")
		n.now(func() { n.finds[orders] = []string{"10.0.0.2:1"} })
		n.uses(orders, 15*time.Second)
		n.leads(orders, "10.0.0.2:1")
		n.leads(orders, "10.0.0.2:1")
		n.now(func() { n.finds[orders], n.err = nil, errors.New("no network") })
		n.uses(orders, 15*time.Second)
		n.leads(orders, away)
		if d := n.r.Explain(t.Context(), orders); d.Address != away || !strings.Contains(d.Routes[0].Reason, "local resolver: no network") {
			t.Errorf("explained as %+v", d)
		}
	}, anywhere(orders))
}

func TestAnAddressThatFailedIsLeftUntilItConnects(t *testing.T) {
	in(t, func(t *testing.T, n *neighbourhood) {
		n.now(func() { n.finds[orders] = []string{"10.0.0.1:1", "10.0.0.2:1"} })
		n.waits(orders, n.takes, "10.0.0.1:1", "10.0.0.2:1")
		n.now(func() { n.refuses["10.0.0.1:1"] = context.DeadlineExceeded })
		before, changed := n.r.View()
		n.r.Failed(orders, "10.0.0.1:1")
		select {
		case <-changed:
		default:
			t.Error("nobody is told that the view has changed")
		}
		if now, _ := n.r.View(); now.Revision <= before.Revision {
			t.Errorf("revision %d comes after %d", now.Revision, before.Revision)
		}
		for range 10 {
			n.leads(orders, "10.0.0.2:1")
		}
		n.r.Failed(orders, "10.0.0.2:1")
		n.leads(orders, away)
		if d := n.r.Explain(t.Context(), orders); d.Cluster != "east" || !strings.Contains(d.Routes[0].Reason, "10.0.0.1:1, 10.0.0.2:1 did not answer") {
			t.Errorf("explained as %+v", d)
		}
		n.uses(orders, 3*time.Second)
		n.leads(orders, "10.0.0.2:1") // connects
		n.uses(orders, time.Minute)
		n.leads(orders, "10.0.0.2:1")
		n.now(func() { n.refuses["10.0.0.1:1"] = nil })
		n.uses(orders, lastCheck+2*time.Second)
		n.leads(orders, "10.0.0.1:1", "10.0.0.2:1")

		// One that connects and fails each time has fewer and fewer calls.
		failed := 0
		for range 600 {
			if address, _ := n.r.ResolveID(t.Context(), orders); address == "10.0.0.1:1" {
				n.r.Failed(orders, address)
				failed++
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if failed < 5 || failed > 25 {
			t.Errorf("an address that connects and fails was called %d times in ten minutes", failed)
		}
	}, anywhere(orders))
}

func TestTheLastWayIsNeverLeft(t *testing.T) {
	in(t, func(t *testing.T, n *neighbourhood) {
		n.now(func() { n.finds[orders] = []string{"10.0.0.1:1", "10.0.0.2:1"} })
		n.waits(orders, n.takes, "10.0.0.1:1", "10.0.0.2:1")
		n.now(func() { n.refuses["10.0.0.1:1"], n.refuses["10.0.0.2:1"] = syscall.ECONNREFUSED, syscall.ECONNREFUSED })
		n.r.Failed(orders, "10.0.0.1:1")
		n.leads(orders, "10.0.0.2:1")
		n.uses(orders, 5*time.Second)
		n.leads(orders, "10.0.0.1:1", "10.0.0.2:1")
	}, onlyHere(orders))
}

func TestAnAddressInUseIsLostByARefusalAndNotByBeingSlow(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("dial: %w", syscall.ECONNREFUSED): away,
		context.DeadlineExceeded:                     "10.0.0.1:1",
		syscall.EMFILE:                               "10.0.0.1:1",
	} {
		in(t, func(t *testing.T, n *neighbourhood) {
			n.now(func() { n.finds[orders] = []string{"10.0.0.1:1"} })
			n.waits(orders, n.takes, "10.0.0.1:1")
			n.now(func() { n.refuses["10.0.0.1:1"] = err })
			n.uses(orders, 2*time.Second)
			n.leads(orders, want)
			n.now(func() { n.refuses["10.0.0.1:1"] = nil })
			n.uses(orders, lastCheck+time.Second)
			n.leads(orders, "10.0.0.1:1")
		}, anywhere(orders))
	}
}

func TestAHostNameIsConnectedToOnlyAfterItFailed(t *testing.T) {
	const name = "orders-dapr.shop.svc.cluster.local:50002"
	in(t, func(t *testing.T, n *neighbourhood) {
		n.now(func() { n.finds[orders] = []string{name} })
		n.waits(orders, n.takes, name)
		n.uses(orders, time.Minute)
		if len(n.checked) > 0 {
			t.Errorf("connected to %q", n.checked)
		}
		n.r.Failed(orders, name)
		n.leads(orders, away)
		n.uses(orders, 3*time.Second)
		n.leads(orders, name)
	}, anywhere(orders))
}

func TestAnAppThatIsNotLookedUpIsNotAskedForAndThenForgotten(t *testing.T) {
	in(t, func(t *testing.T, n *neighbourhood) {
		n.now(func() { n.finds[orders] = []string{"10.0.0.1:1"} })
		n.waits(orders, n.takes, "10.0.0.1:1")
		n.waits(mail, n.takes, "unavailable: ")
		time.Sleep(inUse + 5*time.Second)
		synctest.Wait()
		asked, checks := n.asked[orders], len(n.checked)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n.asked[orders] != asked || len(n.checked) != checks {
			t.Errorf("%d questions and %d checks for nobody", n.asked[orders]-asked, len(n.checked)-checks)
		}
		n.now(func() { n.finds[mail] = []string{"10.0.0.3:1"} })
		n.waits(mail, n.takes, "10.0.0.3:1") // rather than be refused for what was so long ago
		n.now(func() { n.finds[orders] = nil })
		n.leads(orders, "10.0.0.1:1")
		n.uses(orders, 15*time.Second)
		n.leads(orders, away)
		time.Sleep(forgetAfter + time.Minute)
		synctest.Wait()
		if n := n.r.locals.searches.Load().Len(); n != 0 {
			t.Errorf("%d apps are remembered", n)
		}
		n.waits(orders, n.takes, away)
	}, anywhere(orders), onlyHere(mail))
}

func TestOfAnAppWithoutASelectionTheViewHasWhatWasFound(t *testing.T) {
	in(t, func(t *testing.T, n *neighbourhood) {
		n.waits(orders, n.takes, "not found: this cluster has no app shop/orders")
		n.leads(orders, "not found: ")
		n.now(func() { n.finds[orders] = []string{"10.0.0.1:1"} })
		n.uses(orders, 5*time.Second)
		n.leads(orders, "10.0.0.1:1")
		n.r.Failed(orders, "10.0.0.1:1")
		n.leads(orders, "10.0.0.1:1")
		view, _ := n.r.View()
		if entry, ok := view.Entries.Get(orders); !ok || !slices.Equal(entry.Routes[0].Addresses, []string{"10.0.0.1:1"}) {
			t.Errorf("the view has %+v", entry)
		}
	})
}

func TestALookupWithoutAServiceAllocatesNothing(t *testing.T) {
	in(t, func(t *testing.T, n *neighbourhood) {
		n.now(func() { n.finds[orders] = []string{"10.0.0.1:1", "10.0.0.2:1"} })
		n.waits(orders, n.takes, "10.0.0.1:1", "10.0.0.2:1")
		ctx := t.Context()
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := n.r.ResolveID(ctx, orders); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%g allocations", n)
		}
	}, anywhere(orders))
}

func TestQuestionsAreBounded(t *testing.T) {
	var endpoints []catalog.Endpoint
	for i := range 3 * questions {
		endpoints = append(endpoints, anywhere(catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", i)}))
	}
	in(t, func(t *testing.T, n *neighbourhood) {
		n.now(func() { n.takes = 3 * time.Second })
		for range 60 {
			for _, e := range endpoints {
				_, _ = n.r.ResolveID(t.Context(), e.App)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n.most != questions {
			t.Errorf("%d questions at a time, want %d", n.most, questions)
		}
	}, endpoints...)
}

func TestAViewOfTheStoreKeepsWhatWasFound(t *testing.T) {
	in(t, func(t *testing.T, n *neighbourhood) {
		n.now(func() { n.finds[orders] = []string{"10.0.0.1:1"} })
		n.waits(orders, n.takes, "10.0.0.1:1")
		p := &plan{app: checkout, cluster: "west", domain: catalog.DefaultDomain}
		p.take(configstore.Change{Full: true, Objects: []configstore.Stored{{Object: &catalog.AppEndpoints{
			App: checkout, Endpoints: []catalog.Endpoint{onlyHere(orders), onlyHere(ledger)},
		}}}})
		before, _ := n.r.View()
		if saved := n.r.locals.rebase(p.view()); saved.Revision <= before.Revision {
			t.Errorf("revision %d comes after %d", saved.Revision, before.Revision)
		}
		n.leads(orders, "10.0.0.1:1")
		n.waits(ledger, n.takes, "unavailable: ")
	}, anywhere(orders))
}
