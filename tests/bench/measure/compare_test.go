package measure

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestTurnsMeasureEverySubjectOnceARound(t *testing.T) {
	counts := map[string]int{}
	err := Turns(t.Context(), 3, []string{"us", "peer"}, func(_ context.Context, s string) error {
		counts[s]++
		return nil
	})
	if err != nil || counts["us"] != 3 || counts["peer"] != 3 {
		t.Errorf("%v, %v", counts, err)
	}
}

func TestAtOnceSharesOutAll(t *testing.T) {
	done := make(chan int, 4)
	if err := AtOnce(4, 10, func(n int) error { done <- n; return nil }); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for range 4 {
		sum += <-done
	}
	if sum != 10 {
		t.Errorf("%d of 10 were done", sum)
	}
	wrong := errors.New("wrong")
	if err := AtOnce(2, 2, func(int) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
}

func TestACellHasTheRatioToTheReference(t *testing.T) {
	values := map[string]float64{"us": 3, "peer": 2}
	table := Compare("Cost", []string{"us", "peer"}, "peer", func(s string) string { return s }, []Column[string]{
		{Head: "ns", Format: "%.0f", Of: func(s string) float64 { return values[s] }},
		{Head: "lost", Format: "%.0f", Of: func(string) float64 { return 0 }, NoTimes: true},
	})
	var out strings.Builder
	table.Print(&out)
	for _, row := range []string{"| us   | 3 (1.50) |    0 |", "| peer | 2 (1.00) |    0 |"} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
}

func TestRatiosAreRoundByRound(t *testing.T) {
	of, to := Samples{4, 1}, Samples{2, 1}
	if of.Median(); of.Times(to)[0] != 2 || of.Times(to)[1] != 1 {
		t.Errorf("got %v; a median must not reorder the rounds", of.Times(to))
	}
}
