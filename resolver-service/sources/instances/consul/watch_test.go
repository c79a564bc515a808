package consul

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// TestARestlessCatalogIsReadInRounds: however often something is registered, every service
// has its turn, and after each round there is a rest.
func TestARestlessCatalogIsReadInRounds(t *testing.T) {
	const many = 1000
	names := map[string]bool{}
	w := &watch{
		source: &Source{log: slog.New(slog.DiscardHandler)}, emit: func(instances.Change) error { return nil },
		urgent: map[string]bool{}, others: map[string]bool{}, services: map[string]service{}, begun: make(chan struct{}),
	}
	for n := range many {
		names[fmt.Sprint("app-", n)] = true
	}
	turns := map[string]int{}
	read := func() (some []string, turn bool) {
		if err := w.heard(t.Context(), answer{names: names}); err != nil { // something is registered
			t.Fatal(err)
		}
		some, turn = w.next()
		r := result{services: map[string]service{}, took: time.Hour, turn: turn}
		for _, name := range some {
			r.services[name] = service{}
			turns[name]++
		}
		if len(some) > 0 {
			if err := w.take(r); err != nil {
				t.Fatal(err)
			}
		}
		return some, turn
	}
	const reads = (many + batch - 1) / batch
	for round := range 3 {
		for n := range reads {
			if some, turn := read(); len(some) == 0 || turn != (round > 0) {
				t.Fatalf("round %d, read %d: %d services, in turn %t; the first round is for what is new", round, n, len(some), turn)
			}
		}
		for name := range names {
			if turns[name] != round+1 {
				t.Fatalf("after round %d %s was read %d times", round, name, turns[name])
			}
		}
		if round == 0 {
			continue
		}
		if some, _ := read(); len(some) > 0 || w.resting == nil {
			t.Fatalf("after round %d there is no rest", round)
		}
		w.resting = nil // which is over
	}
}
