package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// chart is calls over a time: their rate, with those that fail below the line, or a latency.
type chart struct {
	Title, Summary string
	Good, Bad      string // bars, as paths
	Line, Dots     string // a curve, as paths
	Top, Bottom    string // what the uppermost place stands for, and the lowest
	Zero           int    // where the line is
	Unknown        int    // until here nothing is known
	Marks          []mark
	Begin, Middle  string
	End            string
}

// mark is where changes were made in the time of a chart.
type mark struct {
	X           int
	Text, Title string
}

// change is one write of an object, which charts have a mark of.
type change struct {
	Number int // from 1 on; 0: before the time of the charts
	At     time.Time
	Key    catalog.Key
	Text   string
}

// Measures of a chart, in pixels.
const (
	chartWidth, chartHeight   = 460, 136
	chartLeft, chartRight     = 52, 452
	chartTop, chartBottom     = 18, 116
	chartTextY                = 131
	chartMarkY                = 12
	leastBar                  = 2
	mostChanges, mostChanged  = 12, 12 // in a list; objects that are looked at
	mostFlows, mostCallersRow = 25, 50 // rows
)

// times are the calls of edges by steps of time.
type times struct {
	w        window
	from, to time.Time // that is shown; steps may begin later
	begin    time.Time // of the first step
	steps    []traffic.Counts
}

func timesOf(m *v1alpha1.TrafficResponse, w window) *times {
	t := &times{w: w, to: time.UnixMilli(m.GetToUnixMs()), begin: time.UnixMilli(m.GetFromUnixMs())}
	t.from = t.to.Add(-w.over)
	if t.begin.Before(t.from) {
		t.from = t.begin
	}
	for _, e := range m.GetEdges() {
		for i, step := range e.GetSteps() {
			for len(t.steps) <= i {
				t.steps = append(t.steps, traffic.Counts{})
			}
			if counts, err := traffic.FromWire(step); err == nil {
				t.steps[i].Add(&counts)
			}
		}
	}
	return t
}

func (t *times) x(at time.Time) int {
	return chartLeft + int(float64(chartRight-chartLeft)*at.Sub(t.from).Seconds()/max(1, t.to.Sub(t.from).Seconds()))
}

// step is where a step begins and ends, and how long it lasts.
func (t *times) step(i int) (left, right int, lasts float64) {
	begin := t.begin.Add(time.Duration(i) * t.w.step)
	end := begin.Add(t.w.step)
	if end.After(t.to) {
		end = t.to
	}
	return t.x(begin), t.x(end), max(1, end.Sub(begin).Seconds())
}

// chart is a chart with its times and the marks of changes.
func (t *times) chart(title string, changes []change) *chart {
	layout := "15:04:05"
	if t.w.over > time.Hour {
		layout = "Jan 2 15:04"
	}
	middle := t.from.Add(t.to.Sub(t.from) / 2)
	c := &chart{Title: title, Begin: t.from.UTC().Format(layout), Middle: middle.UTC().Format(layout), End: t.to.UTC().Format(layout), Unknown: t.x(t.begin)}
	for _, ch := range changes {
		if ch.Number == 0 {
			continue
		}
		text, x := fmt.Sprint(ch.Number), min(t.x(ch.At), chartRight)
		if n := len(c.Marks); n > 0 && x-c.Marks[n-1].X < 4*letterWidth { // one for all
			first, _, _ := strings.Cut(c.Marks[n-1].Text, "–")
			c.Marks[n-1].Text, c.Marks[n-1].Title = first+"–"+text, c.Marks[n-1].Title+"; "+ch.title()
			continue
		}
		c.Marks = append(c.Marks, mark{x, text, ch.title()})
	}
	return c
}

func (c *change) title() string { return c.Key.String() + ": " + c.Text }

// rates is the chart of calls a second.
func (t *times) rates(title string, changes []change) *chart {
	c := t.chart(title, changes)
	var good, bad []float64
	var all traffic.Counts
	for i := range t.steps {
		_, _, lasts := t.step(i)
		s := &t.steps[i]
		all.Add(s)
		good, bad = append(good, float64(s.Good())/lasts), append(bad, float64(s.Calls()-s.Good())/lasts)
	}
	if all.Calls() == 0 {
		c.Zero, c.Summary = chartBottom, "no calls"
		return c
	}
	up, down, most := slices.Max(good), slices.Max(bad), 0.0
	for i := range good {
		most = max(most, good[i]+bad[i])
	}
	scale := float64(chartBottom-chartTop) / max(up+down, 1e-9)
	c.Zero = chartTop + int(up*scale)
	if down > 0 {
		c.Zero = min(c.Zero, chartBottom-leastBar)
	}
	var goods, bads strings.Builder
	for i := range good {
		left, right, _ := t.step(i)
		bar := func(b *strings.Builder, rate float64, sign int) {
			if rate > 0 {
				width := max(1, right-left-1)
				fmt.Fprintf(b, "M%d %dh%dv%dh-%dz", left, c.Zero, width, sign*max(leastBar, int(rate*scale)), width)
			}
		}
		bar(&goods, good[i], -1)
		bar(&bads, bad[i], 1)
	}
	c.Good, c.Bad, c.Top = goods.String(), bads.String(), rate(up)
	sum := &v1alpha1.TrafficEdge{}
	all.SumUp(sum, t.to.Sub(t.begin))
	c.Summary = fmt.Sprintf("%s calls/s on average, %s at most; %s go well", show.Rate(sum), rate(most), show.Success(sum))
	if down > 0 {
		c.Bottom = rate(down) + " fail"
		c.Summary += fmt.Sprintf("; at most %s/s fail", rate(down))
	}
	return c
}

func rate(of float64) string { return show.Rate(&v1alpha1.TrafficEdge{CallsPerSecond: of}) }

// latencies is the chart of the 99th percentile.
func (t *times) latencies(title string, changes []change) *chart {
	c := t.chart(title, changes)
	c.Zero = chartBottom
	p99 := make([]float64, len(t.steps)) // ms; 0 without calls
	most := 0.0
	for i := range t.steps {
		p99[i] = float64(t.steps[i].Quantile(.99).Microseconds()) / 1000
		most = max(most, p99[i])
	}
	if most == 0 {
		c.Summary = "no latency is known"
		return c
	}
	var line, dots strings.Builder
	joined := false
	last := ""
	for i, ms := range p99 {
		if ms == 0 {
			joined = false
			continue
		}
		left, right, _ := t.step(i)
		x, y := (left+right)/2, chartBottom-int(ms/most*(chartBottom-chartTop))
		fmt.Fprintf(&line, "%c%d %d", map[bool]byte{false: 'M', true: 'L'}[joined], x, y)
		fmt.Fprintf(&dots, "M%d %dh0", x, y)
		joined, last = true, show.Milliseconds(ms)
	}
	c.Line, c.Dots, c.Top, c.Bottom = line.String(), dots.String(), show.Milliseconds(most), "0"
	c.Summary = "at most " + show.Milliseconds(most) + ", last " + last
	return c
}

// changes are the writes of objects, the oldest first. Those within a time have numbers, in their order.
func (r *request) changes(keys []catalog.Key, t *times) (all []change, err error) {
	slices.SortFunc(keys, func(a, b catalog.Key) int { return cmp.Compare(a.String(), b.String()) })
	keys = slices.Compact(keys)
	for _, key := range keys[:min(len(keys), mostChanged)] {
		versions, err := r.history(key)
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			if v.GetAtUnixMs() != 0 {
				all = append(all, change{At: time.UnixMilli(v.GetAtUnixMs()), Key: key, Text: "revision " + v.GetRevision() + ", " + v.GetChange()})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return a.At.Compare(b.At) })
	all = all[max(0, len(all)-mostChanges):]
	n := 0
	for i := range all {
		if !all[i].At.Before(t.from) {
			n++
			all[i].Number = n
		}
	}
	return all, nil
}
