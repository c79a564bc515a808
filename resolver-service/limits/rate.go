package limits

import (
	"time"

	"golang.org/x/time/rate"
)

// Charge takes n tokens of a limiter, also more than it ever has. wait is the time until all are
// there, for a caller that goes on only then. Others get none before.
func Charge(l *rate.Limiter, n int) (wait time.Duration) {
	now := time.Now()
	for most := l.Burst(); n > 0; n -= most {
		wait = l.ReserveN(now, min(n, most)).DelayFrom(now)
	}
	return wait
}
