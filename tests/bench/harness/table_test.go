package harness

import (
	"os"
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0: 1, .5: 51, .99: 100, 1: 100} {
		if got := Quantile(hundred, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if got := Quantile([]int(nil), .5); got != 0 {
		t.Errorf("the median of nothing is %d", got)
	}
}

func TestMemoryIsThatOfTheProcess(t *testing.T) {
	m := Settled()
	if m.Heap == 0 || m.Heap > 1<<30 {
		t.Errorf("heap is %d bytes", m.Heap)
	}
	if _, err := os.Stat("/proc/self/status"); err == nil && m.RSS < m.Heap {
		t.Errorf("resident %d, heap %d", m.RSS, m.Heap)
	}
}

func TestATableIsMarkdown(t *testing.T) {
	got := markdown("Sizes", [][]string{{"apps", "µs"}, {"10", "1.5"}, {"10,000", "12.5"}})
	want := `
Sizes

| apps   |   µs |
| ------ | ---: |
| 10     |  1.5 |
| 10,000 | 12.5 |

`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
