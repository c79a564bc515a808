//go:build clocks

package simulation

import (
	"math"
	"sync"
	"time"
	"unsafe"
)

//go:linkname goroutineLabel runtime/pprof.runtime_getProfLabel
func goroutineLabel() unsafe.Pointer

//go:linkname setGoroutineLabel runtime/pprof.runtime_setProfLabel
func setGoroutineLabel(unsafe.Pointer)

// byLabel are the clocks by the label of their goroutines.
var byLabel sync.Map

// setClocks gives each machine a clock of its own. It needs the package time that tests/simulation/clocks has
// changed.
func setClocks() {
	now, program = time.BubbleTime, "go test -tags clocks -overlay .cache/clocks/overlay.json ./tests/simulation"
	labelled = func(c *clock) { byLabel.Store(goroutineLabel(), c) }
	time.BubbleNow = func(now int64) (wall, mono int64) {
		if c := current(); c != nil {
			return c.state.Load().at(now)
		}
		return now, now
	}
	time.BubbleWait = func(d time.Duration) time.Duration {
		c := current()
		if c == nil || d > 1<<61 || c.state.Load().rate == 1 {
			return d
		}
		return time.Duration(math.Ceil(float64(d)/c.state.Load().rate)) + 1 // never too early by its own clock
	}
	time.BubbleAfter = func(f func()) func() {
		label := goroutineLabel()
		if label == nil {
			return f
		}
		return func() {
			setGoroutineLabel(label)
			f()
		}
	}
}

func current() *clock {
	label := goroutineLabel()
	if label == nil {
		return nil
	}
	c, _ := byLabel.Load(label)
	own, _ := c.(*clock)
	return own
}
