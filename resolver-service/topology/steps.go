package topology

import "time"

// stepTimer fires when the next step of a ramp is due.
type stepTimer struct {
	*time.Timer
	at time.Duration // for when it is set, as Change.Now; never where it is not
}

func newStepTimer() *stepTimer {
	t := time.NewTimer(never)
	t.Stop()
	return &stepTimer{t, never}
}

// set sets the timer for the next step, if it is not.
func (s *stepTimer) set(t *Topology) {
	next, ok := t.graph.NextStep()
	if !ok {
		if s.at != never {
			s.Stop()
			s.at = never
		}
		return
	}
	if next != s.at {
		s.Reset(next - time.Since(t.start))
		s.at = next
	}
}
