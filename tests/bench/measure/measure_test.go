package measure

import (
	"os"
	"strings"
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
	if got := Median([]int(nil)); got != 0 {
		t.Errorf("the median of nothing is %d", got)
	}
}

func TestMemoryIsThatOfTheProcess(t *testing.T) {
	m := Settled()
	if m.Heap == 0 || m.Heap > 1<<30 {
		t.Errorf("heap is %d bytes", m.Heap)
	}
	if _, err := os.Stat("/proc/self/status"); err == nil && (m.RSS < m.Heap || m.Peak < m.RSS/2) {
		t.Errorf("resident %d, peak %d, heap %d", m.RSS, m.Peak, m.Heap)
	}
}

func TestATableIsMarkdown(t *testing.T) {
	table := Table{Title: "Sizes", Head: []string{"apps", "µs"}}
	table.Add("10", "1.5")
	table.Add("10,000", "12.5")
	var out strings.Builder
	table.Print(&out)
	want := `
Sizes

| apps   |   µs |
| ------ | ---: |
| 10     |  1.5 |
| 10,000 | 12.5 |

`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
