package traffic_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// TestQuantilesAreNear compares quantiles of a million latencies with the exact ones, also where two
// counters are merged.
func TestQuantilesAreNear(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var parts [2]traffic.Counter
	var all []time.Duration
	for i := range 1_000_000 {
		took := time.Duration(math.Exp(random.NormFloat64()*2+8) * float64(time.Microsecond))
		all = append(all, took)
		parts[i%2].Add(traffic.OK, took)
	}
	slices.Sort(all)
	sum, other := parts[0].Read(), parts[1].Read()
	sum.Add(&other)
	for _, part := range []float64{.01, .5, .95, .99, .999} {
		got, exact := sum.Quantile(part).Seconds(), all[int(part*float64(len(all)))].Seconds()
		if off := math.Abs(got-exact) / exact; off > .1 {
			t.Errorf("quantile %v is %v, exactly %v: %.1f %% off", part, got, exact, 100*off)
		}
	}
	if sum.Calls() != uint64(len(all)) || sum.Good() != uint64(len(all)) {
		t.Errorf("%d calls, %d good", sum.Calls(), sum.Good())
	}
}

// TestEveryLatencyHasABucket has latencies at and beyond the ends, and beside each limit.
func TestEveryLatencyHasABucket(t *testing.T) {
	for _, took := range []time.Duration{-time.Second, 0, time.Nanosecond, time.Microsecond, 3 * time.Microsecond, time.Millisecond, time.Hour, 30 * 24 * time.Hour, math.MaxInt64} {
		var c traffic.Counter
		c.Add(traffic.OK, took)
		if counts := c.Read(); counts.Quantile(.5) == 0 {
			t.Errorf("%s has no bucket", took)
		}
	}
	for bucket := 20; bucket < traffic.Buckets-2; bucket++ { // below, whole microseconds are too coarse
		for took, want := range map[time.Duration]int{traffic.Upper(bucket)*9999/10_000 - 2*time.Microsecond: bucket, traffic.Upper(bucket)*10_001/10_000 + 2*time.Microsecond: bucket + 1} {
			var c traffic.Counter
			c.Add(traffic.OK, took)
			if counts := c.Read(); counts.Buckets[want] != 1 {
				t.Errorf("%s is not in bucket %d", took, want)
			}
		}
	}
}

func TestCountsTravel(t *testing.T) {
	var c traffic.Counter
	c.Add(traffic.OK, time.Millisecond)
	c.Retry()
	before := c.Read()
	c.Add(traffic.AppError, time.Second)
	c.Add(traffic.Cancelled, time.Minute)
	now := c.Read()
	news := now.Since(&before)
	if got, err := traffic.FromWire(news.Wire()); err != nil || got != news || got.Calls() != 1 || got.Good() != 0 || got.All() != 2 {
		t.Errorf("%v, %+v, want %+v", err, got, news)
	}
	if none := now.Since(&now); none.Wire() != nil {
		t.Errorf("nothing is %v", none.Wire())
	}
}

// BenchmarkAdd is what a call pays.
func BenchmarkAdd(b *testing.B) {
	var c traffic.Counter
	b.ReportAllocs()
	for i := range b.N {
		c.Add(traffic.OK, time.Duration(i&0xfffff)*time.Microsecond)
	}
}

// FuzzFromWire has messages from outside: those that are taken are as they were.
func FuzzFromWire(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{10, 2, 1, 2, 16, 7, 26, 1, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &v1alpha1.CallTraffic{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		c, err := traffic.FromWire(m)
		if err != nil {
			return
		}
		if again, err := traffic.FromWire(c.Wire()); c.Wire() != nil && (err != nil || again.Ends != c.Ends || again.Buckets != c.Buckets) {
			t.Errorf("%v: %v, then %v", err, c, again)
		}
	})
}
