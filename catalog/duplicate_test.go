package catalog

import (
	"net/netip"
	"slices"
	"testing"
)

func TestAddressesOfTwoAppInstances(t *testing.T) {
	at := func(namespace, name, app, address string) *AppInstance {
		return &AppInstance{Namespace: namespace, Name: name, App: app, Address: netip.MustParseAddrPort(address)}
	}
	all := []*AppInstance{
		at("shop", "b", "billing", "10.0.0.1:1"), at("shop", "a", "orders", "10.0.0.1:1"), at("finance", "c", "orders", "[::ffff:10.0.0.1]:1"),
		at("shop", "d", "orders", "10.0.0.2:1"), at("shop", "e", "orders", "10.0.0.2:1"),
		at("shop", "f", "orders", "10.0.0.1:2"), at("shop", "g", "billing", "[fd00::1]:1"),
	}
	want := []string{
		"AppInstance shop/a: the address 10.0.0.1:1 for shop/orders is that of AppInstance finance/c too, for finance/orders, and an address belongs to one app: finance/orders gets it while both are ready, unless a sidecar there registers; correct spec.address of one of the two, or delete it",
		"AppInstance shop/b: the address 10.0.0.1:1 for shop/billing is that of AppInstance finance/c too, for finance/orders, and an address belongs to one app: finance/orders gets it while both are ready, unless a sidecar there registers; correct spec.address of one of the two, or delete it",
		"AppInstance shop/e: the address 10.0.0.2:1 is that of AppInstance shop/d too, of the same app: the two count as one instance; delete one of them",
	}
	for range 2 {
		var got []string
		for _, d := range DuplicateAddresses(all) {
			got = append(got, d.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		slices.Reverse(all)
	}
	if again := DuplicateAddresses([]*AppInstance{all[0], all[0]}); len(again) > 0 {
		t.Errorf("one object, twice: %v", again)
	}
}
