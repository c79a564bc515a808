package stream

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestWhatIsGoneForCertainDoesNotStandAgain(t *testing.T) {
	instance := func(port uint16) catalog.Instance {
		return catalog.Instance{App: catalog.App{Namespace: "shop", ID: "orders"}, Address: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)}
	}
	const refuses, answers, silent = 1, 2, 3
	ask := func(ctx context.Context, address netip.AddrPort) bool {
		if address.Port() == silent {
			<-ctx.Done()
		}
		return address.Port() == refuses
	}
	synctest.Test(t, func(t *testing.T) {
		former := []catalog.Instance{instance(refuses), instance(answers)}
		for range 1000 {
			former = append(former, instance(silent))
		}
		s := &Server{cfg: Config{Refuses: ask}, log: quiet}
		start := time.Now()
		got := s.withoutRefusing(t.Context(), former)
		if len(got) != len(former)-1 || got[0] != former[1] {
			t.Errorf("%d of %d instances stand, want all but the one that refuses", len(got), len(former))
		}
		if took := time.Since(start); took > refusesWithin {
			t.Errorf("it took %s, want at most %s however many are silent", took, refusesWithin)
		}
		s.cfg.Refuses = nil
		if got := s.withoutRefusing(t.Context(), former); len(got) != len(former) {
			t.Errorf("%d of %d instances stand where nobody is asked", len(got), len(former))
		}
	})
}
