package peering

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestOnlyWhatIsSelectedIsToldWhole follows two apps of which one is selected: of the other there is
// the name, and nothing else is sent of it, until it is selected as well.
func TestOnlyWhatIsSelectedIsToldWhole(t *testing.T) {
	east := newPlace(t, "east", withoutTLS("east"), exported("orders"), exported("ledger"))
	east.apply(runs("orders", "10.0.0.1:50002"))
	east.apply(runs("ledger", "10.0.0.2:50002"))
	east.serve("")
	west := newPlace(t, "west", withoutTLS("west"), selection("checkout", "orders"), reaches("east", 0, east.server.address))
	west.cfg.Many = -1
	links, _ := west.link(reaches("east", enough, east.server.address))
	within(t, "orders answered from east", func() bool { return west.outcome("checkout", "orders") == "ok east" })
	if s := only(links); s.Exports != 2 || s.Followed != 1 || s.Ready != 2 {
		t.Errorf("%d exports, of which %d are followed and %d ready; want 2, 1, 2", s.Exports, s.Followed, s.Ready)
	}
	sent := east.server.sent()
	east.apply(runs("ledger", "10.0.0.3:50002"))
	east.apply(runs("orders", "10.0.0.4:50002"))
	ready := func(id string) uint32 {
		all, err := west.Inventory().AppStates(t.Context(), []catalog.App{app(id)})
		if err != nil || len(all) != 1 || len(all[0].Imports) != 1 {
			t.Fatalf("%s is known as %v, %v", id, all, err)
		}
		return all[0].Imports[0].Ready
	}
	within(t, "the second instance of orders", func() bool { return ready("orders") == 2 })
	if again := east.server.sent() - sent; again != 1 {
		t.Errorf("%d exports were sent for the change of one that is selected and one that is not; want 1", again)
	}
	west.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selection("cart", "ledger")}}})
	within(t, "ledger answered from east", func() bool { return west.outcome("cart", "ledger") == "ok east" })
	if ready("ledger") != 2 || only(links).Followed != 2 {
		t.Errorf("ledger is selected, and %d of 2 instances are known", ready("ledger"))
	}
	west.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{selection("cart").Key()}}})
	within(t, "ledger by its name again", func() bool { return only(links).Followed == 1 && ready("ledger") == 1 })
	for range 2 { // renewals have the digest by the interest as it is now
		left := only(links).LeaseLeftMs
		within(t, "the lease renewed", func() bool {
			was := left
			left = only(links).LeaseLeftMs
			return left > was
		})
	}
	east.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{exported("ledger").Key()}}})
	within(t, "the end of a name", func() bool { return only(links).Exports == 1 })
}

// TestAnInterestIsBounded in the apps that are kept, and in their names.
func TestAnInterestIsBounded(t *testing.T) {
	named := func(names ...string) *v1alpha1.Interest {
		m := &v1alpha1.Interest{}
		for _, name := range names {
			m.Put = append(m.Put, &v1alpha1.App{Namespace: "shop", Id: name})
		}
		return m
	}
	var i interest
	i.take(named("orders", strings.Repeat("x", 1<<20)))
	if by, _ := i.Load(); by == nil || by.Apps.Len() != 1 {
		t.Errorf("a name that no export can have is kept: %v", by)
	}
	var many []string
	for n := range largestInterest {
		many = append(many, fmt.Sprint("app-", n))
	}
	i.take(named(many[1:]...))
	if by, _ := i.Load(); by == nil || by.Apps.Len() != largestInterest {
		t.Errorf("of %d apps %v", largestInterest, by)
	}
	for _, m := range []*v1alpha1.Interest{named("one-more"), named("another")} {
		if i.take(m); func() bool { by, _ := i.Load(); return by != nil }() {
			t.Error("an interest that is too large is none in every app")
		}
	}
}
