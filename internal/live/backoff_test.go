package live

import (
	"math"
	"testing"
	"time"
)

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	for _, c := range []struct {
		failures int
		want     time.Duration
	}{
		{0, 200 * time.Millisecond}, {1, 400 * time.Millisecond}, {5, 6400 * time.Millisecond}, {6, 10 * time.Second}, {math.MaxInt, 10 * time.Second},
	} {
		if got := Backoff(200*time.Millisecond, 10*time.Second, c.failures); got != c.want {
			t.Errorf("after %d failures %s, want %s", c.failures, got, c.want)
		}
	}
	if got := Backoff(time.Minute, time.Second, 0); got != time.Second {
		t.Errorf("beyond the bound: %s", got)
	}
}

func TestJitterStaysWithinAQuarter(t *testing.T) {
	for range 1000 {
		if d := Jitter(time.Second); d < 750*time.Millisecond || d > time.Second {
			t.Fatalf("%s for a second", d)
		}
	}
	if d := Jitter(0); d != 0 {
		t.Errorf("%s for no time", d)
	}
}
