package system

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// untraced is the context of a trace that nobody records, so that lookups go the way
// that they go in production most often.
var untraced = http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}}

// call makes one call and says who answered.
type call func(context.Context) (by string, err error)

// calling is a call over a sidecar's HTTP API, answered by "cluster instance".
func calling(from *sandbox.Sidecar, id string) call {
	return func(ctx context.Context) (string, error) {
		reply, err := from.Invoke(ctx, id, "hello?takes="+takes(), untraced)
		if err != nil {
			return "", err
		}
		return reply.Instance, nil
	}
}

// proxying is a call proxied over gRPC.
func proxying(conn *grpc.ClientConn, id string) call {
	return func(ctx context.Context) (string, error) {
		reply, err := sandbox.Proxy(ctx, conn, id, map[string]string{"takes": takes()})
		if err != nil {
			return "", err
		}
		return reply.Instance, nil
	}
}

// takes is how long an app is to take for a call: so long that at each moment there are
// calls under way.
func takes() string { return (10*time.Millisecond + rand.N(30*time.Millisecond)).String() }

// load is calls made at a steady pace, and what came of them.
type load struct {
	t     *testing.T
	what  string
	stop  context.CancelFunc
	users sync.WaitGroup

	mu      sync.Mutex
	calls   int
	failed  []failure
	by      map[string]int
	first   map[string]time.Time // answer by each; see noneFailedSince
	begun   []time.Time          // the calls that were answered
	last    time.Time            // of an answer
	gap     time.Duration        // the longest time without one
	slowest time.Duration
}

// failure is a call that failed.
type failure struct {
	begun time.Time
	took  time.Duration
	err   error
}

func (f failure) String() string {
	return fmt.Sprintf("at %s, after %s: %v", f.begun.Format("15:04:05.000"), f.took.Round(time.Millisecond), f.err)
}

// callTimeout is when a call counts as failed that did not end.
const callTimeout = meshtest.Patience

// The steady load: each call is made by so many callers, each so often.
const (
	steadyCallers = 8
	steadyPace    = 50 * time.Millisecond
)

// startLoad has each call made by steadyCallers.
func startLoad(t *testing.T, what string, calls ...call) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{t: t, what: what, stop: stop, by: map[string]int{}, first: map[string]time.Time{}, last: time.Now()}
	for _, c := range calls {
		for range steadyCallers {
			l.users.Go(func() { l.run(ctx, c) })
		}
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) run(ctx context.Context, c call) {
	time.Sleep(rand.N(steadyPace)) // not in step
	tick := time.NewTicker(steadyPace)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// A call under way when the load ends is waited for.
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		start := time.Now()
		by, err := c(limit)
		cancel()
		l.note(start, by, err)
	}
}

func (l *load) note(start time.Time, by string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.calls++
	l.slowest = max(l.slowest, now.Sub(start))
	if err != nil {
		l.failed = append(l.failed, failure{start, now.Sub(start), err})
		return
	}
	l.by[by]++
	if _, ok := l.first[by]; !ok {
		l.first[by] = now
	}
	l.begun = append(l.begun, start)
	l.gap = max(l.gap, now.Sub(l.last))
	l.last = now
}

// end stops the calls, waits for those under way and prints what came of them, once.
func (l *load) end() {
	if l.stop == nil {
		return
	}
	l.stop()
	l.stop = nil
	l.users.Wait()
	l.t.Logf("%s: %s", l.what, l.result())
}

func (l *load) result() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := ""
	for _, name := range slices.Sorted(maps.Keys(l.by)) {
		by += fmt.Sprintf(", %d by %s", l.by[name], name)
	}
	return fmt.Sprintf("%d calls, %d failed, longest gap %s, slowest call %s%s",
		l.calls, len(l.failed), l.gap.Round(time.Millisecond), l.slowest.Round(time.Millisecond), by)
}

// noneFailed ends the load and wants every call to have been answered.
func (l *load) noneFailed() {
	l.t.Helper()
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.failed[:min(len(l.failed), 5)] {
		l.t.Errorf("%s: a call failed %s", l.what, f)
	}
}

// fewFailed wants no more calls to have failed than an instance that is killed takes with it:
// each caller can have had one under way, and one more before the view changed, or some more
// on a machine that is busy.
func (l *load) fewFailed() {
	l.t.Helper()
	if n := l.failures(); n > 20*steadyCallers {
		l.t.Errorf("%s: %d calls failed, want at most those under way: %v", l.what, n, l.failed[0])
	}
}

// anew has noneFailedSince look at answers from now on.
func (l *load) anew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.first)
}

// noneFailedSince ends the load and wants every call to have been answered that began after
// the first answer by somebody: the view that led there leads nowhere else.
func (l *load) noneFailedSince(by string) {
	l.t.Helper()
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.failed {
		if f.begun.After(l.first[by]) {
			l.t.Errorf("%s: %q had answered by then, and a call failed %s", l.what, by, f)
			return
		}
	}
}

// answeredBy is how often somebody answered so far.
func (l *load) answeredBy(by string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[by]
}

// failures is how many calls have failed so far.
func (l *load) failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.failed)
}

// firstAfter is how long after a moment the first call began that was answered.
func (l *load) firstAfter(moment time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := time.Duration(-1)
	for _, begun := range l.begun {
		if d := begun.Sub(moment); d > 0 && (first < 0 || d < first) {
			first = d
		}
	}
	return first
}

// enough is how many answers each step of a test waits for at least.
const enough = 100

// answersFrom waits until somebody has answered enough from now on.
func (l *load) answersFrom(by string) {
	l.t.Helper()
	before := l.answeredBy(by)
	meshtest.Eventually(l.t, meshtest.Patience, func() error {
		if n := l.answeredBy(by) - before; n < enough {
			return fmt.Errorf("%s: %q has answered %d times since; so far: %s", l.what, by, n, l.result())
		}
		return nil
	})
}

// onlyFrom waits until nobody else answers while somebody answers enough.
func (l *load) onlyFrom(by string) {
	l.t.Helper()
	meshtest.Eventually(l.t, meshtest.Patience, func() error {
		l.mu.Lock()
		before := maps.Clone(l.by)
		l.mu.Unlock()
		l.answersFrom(by)
		l.mu.Lock()
		defer l.mu.Unlock()
		for who, n := range l.by {
			if who != by && n != before[who] {
				return fmt.Errorf("%s: %q still answers", l.what, who)
			}
		}
		return nil
	})
}
