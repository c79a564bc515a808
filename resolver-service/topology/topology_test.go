package topology

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a topology with its owner at work for as long as the test takes.
func running(t testing.TB, cfg Config) *Topology {
	top := New(cfg, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	var owner sync.WaitGroup
	owner.Go(func() {
		if err := top.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); owner.Wait() })
	return top
}

func (t *Topology) must(tb testing.TB, c Change) uint64 {
	tb.Helper()
	revision, err := t.Apply(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return revision
}

func TestAFollowerSkipsAndNeverReadsBack(t *testing.T) {
	top := running(t, west)
	top.must(t, full(selects("checkout", calls("orders"))))
	const changes = 2000
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			s := top.Subscribe(app("checkout"))
			defer s.Close()
			var seen *catalog.View
			for n := uint32(0); n < changes; {
				v, err := s.Next(t.Context(), seen)
				if err != nil {
					t.Error(err)
					return
				}
				if seen != nil && v.Revision <= seen.Revision {
					t.Errorf("told of revision %d after %d", v.Revision, seen.Revision)
				}
				seen = v
				e, _ := v.Entries.Get(app("orders"))
				if e.Routes[0].Ready < n {
					t.Errorf("%d ready after %d", e.Routes[0].Ready, n)
				}
				n = e.Routes[0].Ready
			}
		})
	}
	for i := range changes {
		told := top.must(t, runs("orders", fmt.Sprint(i), fmt.Sprintf("10.0.%d.%d:50002", i/250, i%250)))
		s := top.Subscribe(app("checkout"))
		if v, _ := s.View(); v.Revision < told || top.Revision() < told {
			t.Fatalf("told of revision %d, then read %d", told, v.Revision)
		}
		s.Close()
	}
	readers.Wait()
}

func TestASelectionComesAndGoesUnderAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := running(t, west)
		s := top.Subscribe(app("checkout"))
		defer s.Close()
		if _, ok := s.View(); ok {
			t.Fatal("a view before the store was read")
		}
		var seen *catalog.View
		next := func(open bool) {
			t.Helper()
			v, err := s.Next(t.Context(), seen)
			if err != nil {
				t.Fatal(err)
			}
			if v.Open != open || seen != nil && v.Revision <= seen.Revision {
				t.Fatalf("open %v at revision %d, want open %v", v.Open, v.Revision, open)
			}
			seen = v
		}
		top.must(t, full())
		next(true)
		top.must(t, objects(selects("checkout", calls("orders"))))
		next(false)
		top.must(t, deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}))
		next(true)
	})
}

func TestAPeerIsKeptWhileItIsFollowed(t *testing.T) {
	top := running(t, west)
	s, err := top.Peer(t.Context(), "east", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.View(); ok {
		t.Fatal("a peer's view before the store was read")
	}
	top.must(t, full(exports("orders", catalog.Allow{Cluster: "east"})))
	v, ok := s.View()
	if !ok || v.Exports.Len() != 1 {
		t.Fatalf("east knows %+v", v)
	}
	s.Close()
	top.must(t, runs("orders", "1", "10.0.0.1:50002"))
	if len(top.peers.value) != 0 {
		t.Errorf("still kept: %v", top.peers.value)
	}
	again, err := top.Peer(t.Context(), "east", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	v, _ = again.View()
	if e, _ := v.Exports.Get(app("orders")); e == nil || e.Ready != 1 {
		t.Errorf("east is told %+v, want 1 ready", e)
	}
}

func TestNobodyIsHeldWhenTheTopologyHasEnded(t *testing.T) {
	top := New(west, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := top.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := top.Apply(t.Context(), full()); err == nil {
		t.Error("a change was taken after the end")
	}
	if d := top.Resolve(app("a"), app("b")); d.Outcome != catalog.NotReady {
		t.Errorf("outcome %v", d.Outcome)
	}
}

func TestAnAppAlwaysResolvesItself(t *testing.T) {
	closed := west
	closed.Open = false
	top := running(t, closed)
	top.must(t, full())
	top.must(t, runs("checkout", "1", "10.0.0.9:50002"))
	if got := show(top.Resolve(app("checkout"), app("checkout"))); got != "ok 10.0.0.9:50002 west" {
		t.Errorf("got %q", got)
	}
}

func TestNothingStaysOfPeersThatAreGone(t *testing.T) {
	top := running(t, west)
	top.must(t, full(exports("orders", catalog.Allow{})))
	for i := range 100 {
		s, err := top.Peer(t.Context(), fmt.Sprint("peer-", i), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	var kept int
	if err := top.ask(t.Context(), func(g *Graph) { kept = len(g.exports.peers) }); err != nil {
		t.Fatal(err)
	}
	if kept > 1 || len(top.peers.value) > 1 {
		t.Errorf("the views of %d peers are kept, and nobody follows any", kept)
	}
}
