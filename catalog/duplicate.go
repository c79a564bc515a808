package catalog

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Duplicate is an AppInstance whose address another one has as well. That need not be a mistake:
// an address may be on its way from one app to another.
type Duplicate struct {
	Instance *AppInstance
	First    *AppInstance // which gets the address while both are ready
}

// DuplicateAddresses finds the AppInstance objects with an address that another one has as well,
// in the order of their keys. It does not change its argument.
func DuplicateAddresses(all []*AppInstance) []Duplicate {
	first, doubled := make(map[netip.AddrPort]*AppInstance, len(all)), map[netip.AddrPort][]*AppInstance{}
	for _, i := range all {
		a := netip.AddrPortFrom(i.Address.Addr().Unmap(), i.Address.Port())
		switch before := first[a]; {
		case before == nil:
			first[a] = i
		case before.Key() == i.Key():
		case i.compareClaim(before) < 0:
			first[a], doubled[a] = i, append(doubled[a], before)
		default:
			doubled[a] = append(doubled[a], i)
		}
	}
	var found []Duplicate
	for a, others := range doubled {
		for _, i := range others {
			found = append(found, Duplicate{i, first[a]})
		}
	}
	slices.SortFunc(found, func(a, b Duplicate) int { return a.Instance.Key().Compare(b.Instance.Key()) })
	return found
}

// compareClaim is below zero where an address of both is this one's: the topology decides by
// the same, so that all replicas come to it whatever they heard of first.
func (i *AppInstance) compareClaim(o *AppInstance) int {
	return cmp.Or(i.AppRef().Compare(o.AppRef()), strings.Compare(i.Name, o.Name))
}

// String names the object and its problem.
func (d Duplicate) String() string { return d.Instance.Key().String() + ": " + d.Problem().Error() }

// Problem names the mistake, which object is used, and what to do.
func (d Duplicate) Problem() error {
	if d.Instance.AppRef() == d.First.AppRef() {
		return fmt.Errorf("the address %s is that of %s too, of the same app: the two count as one instance; delete one of them",
			d.Instance.Address, d.First.Key())
	}
	return fmt.Errorf("the address %s for %s is that of %s too, for %s, and an address belongs to one app: %s gets it while both are ready, unless a sidecar there registers; correct spec.address of one of the two, or delete it",
		d.Instance.Address, d.Instance.AppRef(), d.First.Key(), d.First.AppRef(), d.First.AppRef())
}
