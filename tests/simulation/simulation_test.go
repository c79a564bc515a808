package simulation

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "run this seed alone, with its steps printed")
	runsFlag    = flag.Int("runs", 0, "how many seeds to run; 0 for what takes a minute or less")
	fromFlag    = flag.Uint64("from", 1, "the first of the seeds to run")
	stepsFlag   = flag.Int("steps", 40, "how many steps a run has")
	againFlag   = flag.Int("again", 1, "how often to run the one seed, since the order of what happens at one moment is not decided by it")
	firstFlag   = flag.Bool("first", false, "end with the first seed that fails, and make its steps no shorter")
	withoutFlag = flag.String("without", "", "kinds of steps to leave out, with commas between")
)

// TestMain lets one goroutine run at a time. So the order of events is nearly always the same,
// and a failing seed fails again. The race detector needs it as well: in Go 1.26, two processors
// may run timers of one bubble at a time, in one context of the detector, which crashes.
func TestMain(m *testing.M) {
	if args := os.Getenv(writerEnv); args != "" {
		writers(args)
		return
	}
	flag.Parse()
	setClocks()
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // a third of the time went to garbage
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	goleak.VerifyTestMain(m)
}

func without() []string {
	if *withoutFlag == "" {
		return nil
	}
	return strings.Split(*withoutFlag, ",")
}

// TestSimulation runs many seeds. Each is a subtest, so that its name tells the seed even if the
// run never ends.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		for range *againFlag {
			one := newPlan(*seedFlag, *stepsFlag, without())
			if !simulate(t, one) {
				return
			}
		}
		return
	}
	runs := *runsFlag
	if runs == 0 {
		runs = raced.Fewer(raced.Fewer(20))
	}
	for i := range uint64(runs) {
		seed := *fromFlag + i
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			simulate(t, newPlan(seed, *stepsFlag, without()))
		})
	}
}

// onceFailed are seeds that have failed, and what was wrong. One more is one line.
var onceFailed = []struct {
	seed    uint64
	without []string
	was     string
}{
	{66, names(later), "share: a call that lasts 2 s kept all others from its instance"},
}

func TestSeedsThatHaveFailed(t *testing.T) {
	for _, f := range onceFailed {
		t.Run(fmt.Sprint("seed=", f.seed), func(t *testing.T) {
			if !simulate(t, newPlan(f.seed, 40, f.without)) {
				t.Log("it once was ", f.was)
			}
		})
	}
}

// simulate runs a plan, and tells whether all was well. If not, it says with which steps
// at least it is not.
func simulate(t *testing.T, p *plan) bool {
	t.Helper()
	done, err := run(t, p, mutation{})
	if err == nil {
		return true
	}
	command := fmt.Sprintf("%s -run TestSimulation -seed %d -steps %d", program, p.seed, *stepsFlag)
	if *withoutFlag != "" {
		command += " -without " + *withoutFlag
	}
	if *firstFlag {
		t.Fatalf("seed %d: %v", p.seed, err)
	}
	t.Errorf("seed %d: %v\nafter these steps:\n%s\nreplay: %s", p.seed, err, list(p.steps[:done]), command)
	least := *p
	least.steps = shrink(t, p, done, err)
	t.Logf("these steps are enough:\n%s", list(least.steps))
	return false
}

func list(steps []step) string {
	lines := make([]string, len(steps))
	for i, s := range steps {
		lines[i] = fmt.Sprintf("%4d  %s", i+1, s)
	}
	return strings.Join(lines, "\n")
}

// run runs a plan in a bubble of its own, and returns what was wrong first and after how
// many steps.
func run(t *testing.T, p *plan, m mutation) (done int, fault error) {
	t.Helper()
	defer watchSpinning(p.seed)()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(p, m)
		w.begin(t.TempDir())
		for _, s := range p.steps {
			w.note()
			s.do(w)
			w.look()
			if m == (mutation{}) {
				w.probe()
			}
			done++
			if w.failed() != nil {
				break
			}
		}
		w.end()
		synctest.Wait()
		fault = w.failed()
	})
	return done, fault
}

// looks counts what all worlds have looked at. A world's clock stands still while any part of it is busy.
var looks atomic.Int64

// spinMost is how much time of a processor may pass from one look to the next, which takes milliseconds.
const spinMost = time.Minute

// watchSpinning ends the test with all stacks if a part of a world never comes to rest, so that its
// clock stands still.
func watchSpinning(seed uint64) (stop func()) {
	done := make(chan struct{})
	go func() {
		seen, since := looks.Load(), processTime()
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			if now := looks.Load(); now != seen {
				seen, since = now, processTime()
			} else if processTime()-since > spinMost {
				debug.SetTraceback("all")
				panic(fmt.Sprintf("left: in seed %d a part never comes to rest", seed))
			}
		}
	}()
	return func() { close(done) }
}

// processTime is the time of processors that this process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// most bounds how many runs are made to shrink a list of steps.
const most = 60

// TestQuickRestartsTakeNobodysLastRoute restarts a cluster's only service three times, each time
// long enough that leases end. It is damped then, and callers without another route still call
// it.
func TestQuickRestartsTakeNobodysLastRoute(t *testing.T) {
	for seed := range uint64(4) {
		p := newPlan(seed, 0, nil)
		p.steps[len(p.steps)-1] = step{"restart", "north 3 times", func(w *world) {
			w.calm()
			r := w.cluster("north").replicas[0]
			for range 3 {
				r.stop(true)
				w.pass(w.cluster("north").staleAfter + time.Second)
				r.start(true)
				w.restore(nil)
				w.pass(2 * time.Second)
			}
			if !w.damped() {
				w.fail("nobody is damped")
			}
			w.served(nil)
		}}
		simulate(t, p)
	}
}

// shrink leaves out what is not needed for the same kind of fault.
func shrink(t *testing.T, p *plan, done int, fault error) []step {
	kind, _, _ := strings.Cut(fault.Error(), ":")
	steps := p.steps[:done]
	tries := 0
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at < len(steps) && tries < most; {
			tries++
			fewer := *p
			fewer.steps = append(append([]step{}, steps[:at]...), steps[min(at+size, len(steps)):]...)
			n, err := run(t, &fewer, mutation{})
			if err != nil && strings.HasPrefix(err.Error(), kind) {
				steps = fewer.steps[:n]
				continue
			}
			at += size
		}
	}
	return steps
}
