package catalog

import (
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
