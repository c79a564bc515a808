package tunnel

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// pacing is the pauses between attempts.
type pacing struct {
	attempts int // one soon after the other
	last     time.Time
	err      error
	most     int // tunnels that there were
	missing  time.Time
}

// The pauses grow from the first to the longest.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 900 * time.Millisecond
	refusedPause = 5 * time.Second  // after refusals
	probePause   = 10 * time.Second // while other replicas than those with a tunnel are looked for
	missingFor   = time.Minute      // is one looked for often
	calm         = 10 * time.Second // without an attempt: the next one is made at once
)

// wait pauses before an attempt. It is cut short where a tunnel has changed. It is false when ctx ends.
func (p *pacing) wait(ctx context.Context, changed <-chan struct{}, has int) bool {
	now := time.Now()
	switch {
	case has >= p.most:
		p.most, p.missing = has, time.Time{}
	case p.missing.IsZero():
		p.missing = now
	case now.Sub(p.missing) > missingFor: // there are fewer replicas
		p.most, p.missing = has, time.Time{}
	}
	longest := longestPause
	switch {
	case errors.As(p.err, &refusal{}):
		longest = refusedPause
	case errors.Is(p.err, errHas) && p.missing.IsZero():
		longest = probePause
	}
	if p.attempts++; now.Sub(p.last) > calm && longest < calm {
		p.attempts = 0
	}
	if p.attempts > 0 {
		pause := live.Jitter(live.Backoff(firstPause, longest, p.attempts-1))
		select {
		case <-time.After(pause):
		case <-changed:
			p.attempts = min(p.attempts, 2) // and no less: the other end can cause this
			if !live.Sleep(ctx, live.Jitter(live.Backoff(firstPause, longestPause, p.attempts-1))) {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
	p.last = time.Now()
	return ctx.Err() == nil
}
