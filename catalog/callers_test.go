package catalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func TestCallersAreKnownByAddress(t *testing.T) {
	checkout, orders := App{Namespace: "shop", ID: "checkout"}, App{Namespace: "shop", ID: "orders"}
	four, six, mapped := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.1")
	var none *Callers
	if _, ok := none.Get(four); ok || none.Len() != 0 {
		t.Error("no Callers know somebody")
	}
	first := none.With(CallerEdit{Address: four, Caller: Caller{App: checkout}}, CallerEdit{Address: six, Caller: Caller{App: orders}})
	second := first.With(CallerEdit{Address: mapped, Caller: Caller{Shared: true}}, CallerEdit{Address: six, Remove: true})
	for _, c := range []struct {
		callers *Callers
		address netip.Addr
		want    Caller
		ok      bool
	}{
		{first, four, Caller{App: checkout}, true},
		{first, mapped, Caller{App: checkout}, true},
		{first, six, Caller{App: orders}, true},
		{first, netip.MustParseAddr("10.0.0.2"), Caller{}, false},
		{second, four, Caller{Shared: true}, true},
		{second, six, Caller{}, false},
	} {
		if got, ok := c.callers.Get(c.address); got != c.want || ok != c.ok {
			t.Errorf("%s: got %v %v, want %v %v", c.address, got, ok, c.want, c.ok)
		}
	}
	if allocations := testing.AllocsPerRun(100, func() { first.Get(six) }); allocations != 0 {
		t.Errorf("a look-up makes %v allocations", allocations)
	}
}

// Callers answer as a map would, whatever is edited, and the old ones don't change.
func TestCallersAreLikeAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr {
		last, block := byte(random.IntN(256)), byte(random.IntN(3))
		if random.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, 0, block, last})
		}
		return netip.AddrFrom16([16]byte{0: 0xfd, 14: block, 15: last})
	}
	callers, want := &Callers{}, map[netip.Addr]Caller{}
	for range 300 {
		before, had := callers, maps.Clone(want)
		var edits []CallerEdit
		for range 1 + random.IntN(40) {
			e := CallerEdit{Address: address(), Caller: Caller{App: App{"shop", fmt.Sprint(random.IntN(5))}}, Remove: random.IntN(3) == 0}
			if edits = append(edits, e); e.Remove {
				delete(want, e.Address)
			} else {
				want[e.Address] = e.Caller
			}
		}
		callers = callers.With(edits...)
		checkCallers(t, before, had)
		checkCallers(t, callers, want)
	}
}

func checkCallers(t *testing.T, callers *Callers, want map[netip.Addr]Caller) {
	t.Helper()
	if callers.Len() != len(want) {
		t.Fatalf("%d callers; want %d", callers.Len(), len(want))
	}
	for block := range byte(4) {
		for last := range 256 {
			for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{10, 0, block, byte(last)}), netip.AddrFrom16([16]byte{0: 0xfd, 14: block, 15: byte(last)})} {
				expected, has := want[a]
				if got, ok := callers.Get(a); got != expected || ok != has {
					t.Fatalf("%s: got %v %v, want %v %v", a, got, ok, expected, has)
				}
			}
		}
	}
}
