package main

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

func TestWeightsAreShifted(t *testing.T) {
	for _, c := range []struct {
		weights []uint32 // of routes, the first of which is shifted; the last is of a later priority
		part    basisPoints
		want    string
	}{
		{[]uint32{10, 90, 7}, 2000, "a 20, b 80, c 7"},
		{[]uint32{0, 1, 7}, 1, "a 1, b 9999, c 7"},
		{[]uint32{1, 1, 7}, 1250, "a 125, b 875, c 7"},
		{[]uint32{0, 1, 7}, 0, "a 0, b 100, c 7"},
		{[]uint32{0, 1, 7}, 10_000, "a 100, b 0, c 7"},
		{[]uint32{10, 60, 20, 10, 7}, 5000, "a 9, b 6, c 2, d 1, e 7"},
		{[]uint32{100, 0, 0, 7}, 5000, "a 50, b 25, c 25, d 7"},
		{[]uint32{0, 9999, 1, 7}, 9000, "a 10000, b 1111, c 1, d 7"},
		{[]uint32{1, 3333, 3334, 3333, 7}, 3333, "a 10000, b 6667, c 6669, d 6667, e 7"},
	} {
		routes := make([]catalog.RouteSpec, len(c.weights))
		for i, w := range c.weights {
			routes[i] = catalog.RouteSpec{Cluster: string(rune('a' + i)), Weight: w}
		}
		routes[len(routes)-1].Priority = 1
		next := shifted(routes, 0, c.part)
		if got := weights(next); got != c.want {
			t.Errorf("%v, %s to the first: %s, want %s", c.weights, c.part, got, c.want)
		}
		if part, _ := partOf(next, 0); max(part, c.part)-min(part, c.part) > 1 {
			t.Errorf("%v: the first has %s, want %s", c.weights, part, c.part)
		}
		if routes[0].Weight != c.weights[0] {
			t.Error("the routes that there were have changed")
		}
	}
}

func TestStepsLeadToTheTarget(t *testing.T) {
	for _, c := range []struct {
		from, target, step basisPoints
		want               string
	}{
		{500, 2500, 1000, "15 %, 25 %"}, {500, 3000, 1000, "15 %, 25 %, 30 %"}, {10_000, 0, 6000, "40 %, 0 %"}, {0, 1, whole, "0.01 %"}, {3333, 3333, 100, ""},
	} {
		s := &shifting{target: c.target, step: c.step, all: []*shiftedObject{{moved: []movedRoute{{from: c.from}}}}}
		var all []string
		for k := 1; k <= s.steps(); k++ {
			all = append(all, c.from.toward(c.target, c.step, k).String())
		}
		if got := strings.Join(all, ", "); got != c.want {
			t.Errorf("from %s to %s by %s: %s, want %s", c.from, c.target, c.step, got, c.want)
		}
	}
}

func TestBoundsOfCalls(t *testing.T) {
	var seen traffic.Counts
	seen.Ends[traffic.OK], seen.Ends[traffic.AppError], seen.Ends[traffic.Cancelled] = 99, 1, 50
	var c traffic.Counter
	for range 100 {
		c.Add(traffic.OK, 100*time.Millisecond)
	}
	seen.Buckets = c.Read().Buckets
	for text, broken := range map[string]string{
		"success>98.9%": "", "success>99%": "success>99%", "p99<50ms": "p99<50ms", "p50 < 1s, p95<0.9s": "", "success>50%,p95<10ms": "p95<10ms",
	} {
		bounds, err := parseBounds(text)
		if err != nil || firstBroken(bounds, &seen) != broken {
			t.Errorf("%s: %q does not hold, %v; want %q", text, firstBroken(bounds, &seen), err, broken)
		}
	}
	for _, odd := range []string{"success", "success<99%", "success>100%", "success>101%", "success>0.99", "p98<1s", "p99>1s", "p99<1", "p99<-1s", ",", "success>9%,"} {
		if bounds, err := parseBounds(odd); err == nil {
			t.Errorf("%q was taken as %v", odd, bounds)
		}
	}
	for _, to := range []string{"", "east", "=5%", "east=5", "east=101%", "east=-1%"} {
		if err := (&shifting{every: time.Minute}).read(to, "", ""); err == nil {
			t.Errorf("--to %q was taken", to)
		}
	}
	if err := (&shifting{every: time.Second}).read("east=5%", "", "success>9%"); err == nil {
		t.Error("figures are asked for before there are any")
	}
}
