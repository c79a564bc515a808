package live

import (
	"math/rand/v2"
	"time"
)

// Backoff is the pause after the given number of earlier failures: first, doubled each time, up to
// longest.
func Backoff(first, longest time.Duration, failures int) time.Duration {
	d := first
	for ; failures > 0 && d < longest; failures-- {
		d *= 2
	}
	return min(d, longest)
}

// Jitter returns a random duration from three quarters of d to d, so that many processes don't do
// the same at one moment.
func Jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/4+1) }
