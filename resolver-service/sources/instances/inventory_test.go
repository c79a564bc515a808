package instances

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// told are changes in words: "orders/1" for an instance, "-orders/1" for one that goes.
func told(changes []topology.InstanceChange) string {
	var words []string
	for _, c := range changes {
		for _, i := range c.Put {
			words = append(words, i.App.ID+"/"+i.ID)
		}
		for _, key := range c.Delete {
			words = append(words, "-"+key.App.ID+"/"+key.ID)
		}
	}
	return strings.Join(words, " ")
}

// TestOnlyDifferencesAreTold: also a registration of which nothing but its time is new.
func TestOnlyDifferencesAreTold(t *testing.T) {
	one, two := at("orders", "1", "10.0.0.1:1"), at("orders", "2", "10.0.0.2:1")
	later, moved, drains := one, two, one
	later.Since, moved.Address, drains.Draining = 7, netip.MustParseAddrPort("10.0.0.9:1"), true
	put := func(all ...catalog.Instance) Change { return Change{Put: all} }
	gone := Change{Delete: []topology.InstanceKey{keyed("orders", "1")}}
	for what, c := range map[string]struct {
		said []Change
		want string
	}{
		"said again":            {[]Change{put(one, two)}, ""},
		"in a set again":        {[]Change{full(two, one)}, ""},
		"registers once more":   {[]Change{put(later)}, "orders/1"},
		"moves":                 {[]Change{put(moved)}, "orders/2"},
		"drains, and is back":   {[]Change{put(drains), put(one)}, ""},
		"goes":                  {[]Change{gone}, "-orders/1"},
		"goes, and is back":     {[]Change{gone, put(one)}, ""},
		"goes, and comes later": {[]Change{gone, put(later)}, "orders/1"},
		"is not in the set":     {[]Change{full(two)}, "-orders/1"},
	} {
		s := newInventory(10)
		s.apply(full(one, two))
		first := s.flush("a", topology.Scheduled, true)
		if got := told(first); got != "orders/1 orders/2" || !first[0].Full || first[0].Rank != topology.Scheduled || first[0].Source != "a" {
			t.Fatalf("told %+v at first", first)
		}
		for _, said := range c.said {
			s.apply(said)
		}
		changes := s.flush("a", topology.Scheduled, false)
		if got := told(changes); got != c.want {
			t.Errorf("%s: told %q, want %q", what, got, c.want)
		}
		for _, change := range changes {
			if change.Rank != topology.Scheduled || change.Full {
				t.Errorf("%s: %+v", what, change)
			}
		}
		if again := s.flush("a", 0, false); len(again) > 0 {
			t.Errorf("%s: %d changes are told twice", what, len(again))
		}
	}
}

func TestAHugeSetComesInPortions(t *testing.T) {
	var all []catalog.Instance
	for n := range 3*portion + 1 {
		i := at(fmt.Sprint("app-", n%7), fmt.Sprint(n*7919%100_003), "10.0.0.1:1")
		i.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 1)
		all = append(all, i)
	}
	s := newInventory(len(all))
	s.apply(full(all...))
	changes := s.flush("a", 0, true)
	put := 0
	for n, c := range changes {
		if c.Full != (n == 0) || len(c.Put) > portion {
			t.Errorf("portion %d: full %t, with %d", n, c.Full, len(c.Put))
		}
		put += len(c.Put)
	}
	if len(changes) != 4 || put != len(all) {
		t.Errorf("%d of %d in %d portions", put, len(all), len(changes))
	}
}
