package simulation

import (
	"context"
	"fmt"
	"runtime/pprof"
	"sync/atomic"
	"time"
)

// clock is that of one machine: what runs there reads it. It takes effect in a build with the tag clocks,
// as "make simulate" does. In others all machines have the bubble's clock.
type clock struct {
	host  context.Context // has the label that goroutines of the machine carry
	state atomic.Pointer[reading]
}

// reading is how a clock goes from a moment of the bubble on, all in ns. Readings are immutable.
type reading struct {
	from, wall, mono int64
	rate             float64
}

func (r *reading) at(now int64) (wall, mono int64) {
	passed := int64(float64(now-r.from) * r.rate)
	return r.wall + passed, r.mono + passed
}

// program is how to run the tests again with the clocks that they have.
var program = "go test ./tests/simulation"

// now is the bubble's own time, by which the model goes.
var now = time.Now

// labelled is called for each clock with the current goroutine labelled for it.
var labelled = func(*clock) {}

func newClock(host string) *clock {
	c := &clock{host: pprof.WithLabels(context.Background(), pprof.Labels("machine", host))}
	at := now().UnixNano()
	c.state.Store(&reading{from: at, wall: at, mono: at, rate: 1})
	return c
}

// acting is the machine for which the world's goroutine acts.
var acting = context.Background()

// do runs what a machine does: all goroutines that this starts have its clock. The world's goroutine calls it.
func (c *clock) do(what func()) {
	before := acting
	acting = c.host
	pprof.SetGoroutineLabels(acting)
	labelled(c)
	what()
	acting = before
	pprof.SetGoroutineLabels(acting)
}

// set sets the wall clock forward or back, and how fast the clock goes from now on.
func (c *clock) set(jump time.Duration, rate float64) {
	at := now().UnixNano()
	wall, mono := c.state.Load().at(at)
	c.state.Store(&reading{from: at, wall: wall + int64(jump), mono: mono, rate: rate})
}

// clocks are those of all machines, by host.
func (w *world) clocks() map[string]*clock {
	all := map[string]*clock{}
	w.each(func(r *replica) { all[r.host] = r.clock })
	for _, c := range w.clusters {
		for _, d := range c.sidecars {
			all[d.host] = d.clock
		}
	}
	return all
}

// clock sets the clock of a machine an hour forward or back, or to the right time, and has it go up to 3 %
// too slow or too fast.
func (m maker) clock() (string, func(*world)) {
	host, _ := m.replica()
	if m.chance(50) {
		host = one(m, clusterNames) + "/" + one(m, apps).ID
	}
	jump, rate := one(m, []time.Duration{-time.Hour, -time.Minute, 0, time.Minute, time.Hour}), one(m, []float64{0.97, 0.99, 1, 1, 1.01, 1.03})
	return fmt.Sprintf("%s by %s, rate %.2f", host, jump, rate), func(w *world) { w.clocks()[host].set(jump, rate) }
}
