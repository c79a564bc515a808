package instances

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// said is what a topology was told, a word for each instance: "orders/1", with a "=" behind one
// that stood, and " | " between changes of the topology.
type said struct {
	mu    sync.Mutex
	words []string
	slow  time.Duration
}

func (s *said) Apply(_ context.Context, c topology.Change) (uint64, error) {
	time.Sleep(s.slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.words) > 0 {
		s.words = append(s.words, "|")
	}
	for _, change := range c.Instances {
		for _, key := range change.Delete {
			s.words = append(s.words, "-"+key.App.ID+"/"+key.ID)
		}
		for _, i := range change.Put {
			word := i.App.ID + "/" + i.ID
			if change.Standing {
				word += "="
			}
			s.words = append(s.words, word)
		}
	}
	return 1, nil
}

// hears is what the topology is told of a source that says changes, some time apart.
func hears(t *testing.T, slow time.Duration, s *script) string {
	t.Helper()
	to := &said{slow: slow}
	tells(t, to, s)
	return strings.Join(to.words, " ")
}

// tells has a feed tell a topology what a source says, until it has nothing more to say.
func tells(t *testing.T, to Applier, s *script) {
	t.Helper()
	f, err := NewFeed(FeedConfig{Sources: []Source{s}}, to, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_ = f.Run(ctx) // until its time is up
}

// What a source has when it is first heard stood before, and nothing that comes later.
func TestWhatIsInTheFirstSetStoodBefore(t *testing.T) {
	one, two, three := at("orders", "1", "10.0.0.1:1"), at("orders", "2", "10.0.0.2:1"), at("billing", "3", "10.0.0.3:1")
	drains, moves := one, two
	drains.Draining, moves.Address = true, netip.MustParseAddrPort("10.0.0.9:1")
	put := func(all ...catalog.Instance) Change { return Change{Put: all} }
	stands := func(c Change) Change {
		c.Standing = true
		return c
	}
	for _, c := range []struct {
		what    string
		slow    time.Duration // the topology, so that changes become one
		watches []func(func(Change) error) error
		want    string
	}{
		{"what comes later", 0, []func(func(Change) error) error{says(nil, full(one), put(two), put(three))}, "orders/1= | orders/2 | billing/3"},
		{"one that moves, and one that only drains", 0, []func(func(Change) error) error{says(nil, full(one, two), put(moves), put(drains))}, "orders/1= orders/2= | orders/2 | orders/1"},
		{"a source that comes back", 0, []func(func(Change) error) error{says(errAway, full(one)), says(nil, full(one, two))}, "orders/1= | orders/2"},
		{"a source that was empty", 0, []func(func(Change) error) error{says(nil, full(), put(one))}, "orders/1"},
		{"a source that knows nothing of when", 0, []func(func(Change) error) error{says(nil, stands(full(one)), stands(put(two)))}, "orders/1= | orders/2="},
		{"changes that become one", 5 * time.Second, []func(func(Change) error) error{says(nil, full(), put(two), put(one), put(three))}, "orders/2 orders/1 billing/3"},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := hears(t, c.slow, &script{name: "a", watches: c.watches}); got != c.want {
				t.Errorf("%s: %q, want %q", c.what, got, c.want)
			}
		})
	}
}

// A set that was said while the topology was busy, and changes of it, are told together: what
// of it stood before and what came since is told apart, and each in its order.
func TestWhatStoodAndWhatCameAreToldApart(t *testing.T) {
	one, two, three, four := at("orders", "1", "10.0.0.1:1"), at("orders", "2", "10.0.0.2:1"), at("billing", "3", "10.0.0.3:1"), at("billing", "4", "10.0.0.4:1")
	s := newStanding(10)
	s.apply(full(three, one, two))
	moves, drains := one, three
	moves.Address, drains.Draining = netip.MustParseAddrPort("10.0.0.9:1"), true
	s.apply(Change{Put: []catalog.Instance{four}})
	s.apply(Change{Put: []catalog.Instance{moves, drains}})
	var told []string
	for _, c := range s.flush("a", true) {
		told = append(told, fmt.Sprint(c.Full, c.Standing))
		for _, i := range c.Put {
			told = append(told, i.ID)
		}
	}
	if text := strings.Join(told, " "); text != "true true 3 2 false false 4 1" {
		t.Errorf("told %s", text)
	}
}

// The order of a first set is kept over its portions.
func TestAHugeFirstSetComesInItsOrder(t *testing.T) {
	var all []catalog.Instance
	for n := range 3*portion + 1 {
		i := at(fmt.Sprint("app-", n%7), fmt.Sprint(n*7919%100_003), "10.0.0.1:1")
		i.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 1)
		all = append(all, i)
	}
	s := newStanding(len(all))
	s.apply(full(all...))
	changes := s.flush("a", true)
	var told []catalog.Instance
	for n, c := range changes {
		if c.Full != (n == 0) || !c.Standing {
			t.Errorf("portion %d: full %t, standing %t", n, c.Full, c.Standing)
		}
		told = append(told, c.Put...)
	}
	if len(changes) != 4 || !slices.Equal(told, all) {
		t.Errorf("%d portions, in another order than they were said", len(changes))
	}
}
