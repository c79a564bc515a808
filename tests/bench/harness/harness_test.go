package harness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// of is a benchmark that ends with a test.
func of(t *testing.T) *B { return &B{Context: t.Context()} }

func TestTurnsMeasureEverySubjectOnceARound(t *testing.T) {
	counts := map[string]int{}
	err := Try(func() { Turns(of(t), 3, []string{"us", "peer"}, func(s string) { counts[s]++ }) })
	if err != nil || counts["us"] != 3 || counts["peer"] != 3 {
		t.Errorf("%v, %v", counts, err)
	}
}

func TestAtOnceSharesOutAll(t *testing.T) {
	done := make(chan int, 4)
	AtOnce(4, 10, func(n int) { done <- n })
	sum := 0
	for range 4 {
		sum += <-done
	}
	if sum != 10 {
		t.Errorf("%d of 10 were done", sum)
	}
	wrong := errors.New("wrong")
	if err := Try(func() { AtOnce(2, 2, func(int) { Check(wrong) }) }); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
}

func TestRatiosAreRoundByRound(t *testing.T) {
	peer := &Subject{Name: "peer"}
	us := &Subject{Name: "us", Beside: peer}
	for _, round := range [][2]float64{{4, 2}, {1, 1}, {9, 3}} {
		us.Add("ns", round[0])
		peer.Add("ns", round[1])
	}
	if got := us.Times("ns", .5); got != 2 {
		t.Errorf("%v times, want the median of 2, 1 and 3; a median must not reorder the rounds", got)
	}
	if got := us.Times("ns", 1); got != 3 {
		t.Errorf("at most %v times, want 9 beside 3", got)
	}
}

func TestACellHasTheRatioToTheReferenceAndTheAimAVerdict(t *testing.T) {
	peer := &Subject{Name: "peer"}
	us := &Subject{Name: "us", Beside: peer, Held: true}
	us.Add("ns", 3)
	peer.Add("ns", 2)
	us.Add("lost", 0)
	rows, verdicts := cells([]*Subject{us, peer}, []Column{
		{Head: "ns", Figure: "ns", Format: "%.0f", Quantile: .5, Times: 1.6, Most: 2}, {Head: "lost", Figure: "lost", Format: "%.0f"},
	})
	table := markdown("Cost", rows) + verdicts
	for _, line := range []string{"| us   | 3 (1.50) |    0 |", "| peer |        2 |    — |", "us, ns: at most 1.60 ×: met", "us, ns: at most 2: MISSED"} {
		if !strings.Contains(table, line) {
			t.Errorf("no line %q in\n%s", line, table)
		}
	}
}

func TestAScopeEndsWhatItHasStartedInReverseOrder(t *testing.T) {
	var ended []string
	wrong := errors.New("wrong")
	err := Try(func() {
		of(t).Scope(func(b *B) {
			b.Defer(func() { ended = append(ended, "first") })
			b.Go(func(ctx context.Context) error { <-ctx.Done(); ended = append(ended, "background"); return nil })
			b.Cleanup(func() error { ended = append(ended, "last"); return nil })
			Check(wrong)
		})
	})
	if !errors.Is(err, wrong) || !slices.Equal(ended, []string{"last", "background", "first"}) {
		t.Errorf("%v, ended %v", err, ended)
	}
}

func TestWhatFailsInTheBackgroundEndsTheBenchmark(t *testing.T) {
	wrong := errors.New("wrong")
	err := Try(func() {
		of(t).Scope(func(b *B) {
			b.Go(func(context.Context) error { return wrong })
			b.Pause(Patience)
		})
	})
	if !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
}

func TestARoleAnswersByItsMethods(t *testing.T) {
	for _, c := range []struct {
		method   any
		argument string
		want     any
	}{
		{func() string { return "here" }, "null", "here"},
		{func(n int) int { return 2 * n }, "4", 8},
		{func([]int) {}, "[1]", nil},
	} {
		if got := call(c.method, []byte(c.argument)); got != c.want {
			t.Errorf("%T of %s is %v, want %v", c.method, c.argument, got, c.want)
		}
	}
}
