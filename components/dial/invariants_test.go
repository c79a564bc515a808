package dial

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

var (
	histories = flag.Int("histories", 8, "random histories of TestHistories")
	from      = flag.Uint64("from", 0, "seed of the first; 0: by the clock")
	bursts    = flag.Int("bursts", 3, "times that much happens in each, with a calm after it")
)

const (
	// parallelHistories is how many histories run at a time; they mostly wait.
	parallelHistories = 4
	// shareDeadline is how long a ready instance may be without its share.
	shareDeadline = 5 * time.Second
	// viewGrace is how long calls may follow a view after the next one was published. pathSettles
	// is how long a path has to exist before calls must find it.
	viewGrace   = 300 * time.Millisecond
	pathSettles = 2 * time.Second
	// historyCallers is how many callers call at a time.
	historyCallers = 3
	// shareWindow is how many calls are counted to compare shares.
	shareWindow = 200
)

// attempt is a call, and how it ended.
type attempt struct {
	began, ended time.Time
	proxied      bool // an app's own method, which is not repeated
	err          error
	executions   []execution
	hadPath      bool   // a path existed all the time
	path         string // the address it led to
	faults       int    // that may have cut it off
}

// execution is a call that began at an instance.
type execution struct {
	at      time.Time
	address string
}

// Every history holds these invariants. A ready instance soon has its share, whatever happened
// before. No call goes where no view leads. A call that no instance began does not fail while a
// path exists. No call ends with Canceled, which daprd does not repeat. No call runs more than twice, or more than once without repeats. After Close nothing
// is left.
func TestHistories(t *testing.T) {
	first, pauses := *from, stalls.Begin(t)
	if first == 0 {
		first = uint64(time.Now().UnixNano() / 1000)
	}
	free := make(chan struct{}, parallelHistories)
	var running sync.WaitGroup
	for seed := first; seed < first+uint64(*histories); seed++ {
		h := newHistory(t, seed, pauses)
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			if err := h.run(); err != nil {
				t.Errorf("%v\nreplay it in components/daprd: go test ./dial -run TestHistories -histories 1 -from %d -bursts %d\n  %s", err, seed, *bursts, strings.Join(h.steps, "\n  "))
			}
		})
	}
	running.Wait()
}

// run runs a history, and returns the invariant that it broke.
func (h *history) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	pool := new(daprdPool)
	for range historyCallers {
		calling.Go(func() { h.caller(ctx, pool) })
	}
	var err error
	for range *bursts {
		for range 4 + h.rand.IntN(10) {
			h.step()
			time.Sleep(time.Duration(h.rand.IntN(500)) * time.Millisecond / time.Duration(1+h.rand.IntN(10)))
		}
		h.calm()
		if err = h.waitForShares(); err != nil {
			break
		}
	}
	cancel()
	calling.Wait()
	h.end()
	return errors.Join(err, h.checkCalls(), h.checkClosed())
}

// caller makes calls one after the other.
func (h *history) caller(ctx context.Context, pool *daprdPool) {
	for n := 0; ctx.Err() == nil; n++ {
		conn, err := pool.get(h)
		if err != nil {
			h.t.Errorf("dial: %v", err)
			return
		}
		if err := h.call(conn, n%4 == 0); status.Code(err) == codes.Unavailable {
			pool.destroy(conn)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// daprdPool has the connection that all callers share, as in daprd. When a call on it ends with
// Unavailable, daprd closes it, and dials again for the next call.
type daprdPool struct {
	mu   sync.Mutex
	conn *grpc.ClientConn
}

func (p *daprdPool) get(h *history) (conn *grpc.ClientConn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		p.conn, err = daprdDial(h.t, h.Dialer, h.Name(planOf(orders)))
	}
	return p.conn, err
}

func (p *daprdPool) destroy(conn *grpc.ClientConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == conn {
		p.conn = nil
	}
	_ = conn.Close()
}

func (h *history) call(conn *grpc.ClientConn, proxied bool) error {
	c := &attempt{began: time.Now(), proxied: proxied}
	h.mu.Lock()
	id := len(h.calls)
	h.calls = append(h.calls, c)
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), callKey, strconv.Itoa(id)), time.Minute)
	defer cancel()
	var err error
	if proxied {
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	} else {
		_, err = internalv1.NewServiceInvocationClient(conn).CallLocal(ctx, &internalv1.InternalInvokeRequest{})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.ended, c.err = time.Now(), err
	for p, since := range h.paths {
		if since.Before(c.began.Add(-pathSettles - 10*h.pauses.Longest(since))) {
			c.hadPath, c.path = true, p.callee.address
		}
	}
	for _, at := range h.faults {
		if at.After(c.began.Add(-time.Second)) {
			c.faults++
		}
	}
	return err
}

// waitForShares waits until every instance has its share.
func (h *history) waitForShares() error {
	since := time.Now()
	for {
		began := time.Now()
		err := h.checkShares()
		if err == nil {
			return nil
		}
		if began.Sub(since) > shareDeadline+10*h.pauses.Longest(since) {
			return err
		}
	}
}

// checkShares counts calls, and compares them with expectedShares.
func (h *history) checkShares() error {
	due := h.expectedShares()
	if len(due) == 0 {
		return nil
	}
	given := map[*testInstance]int64{}
	for i := range due {
		given[i] = -i.given.Load()
	}
	total, began := int64(0), time.Now()
	for ; total < shareWindow; time.Sleep(20 * time.Millisecond) {
		total = 0
		for i := range due {
			total += given[i] + i.given.Load()
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("%d calls began in a minute; the last ended with: %v", total, h.lastError())
		}
	}
	for i, share := range due {
		n := given[i] + i.given.Load()
		if want := share * float64(total); float64(n) < want/2-3 || float64(n) > want*2+3 {
			return fmt.Errorf("%s in %s had %d of %d calls, and %.0f are its share", i.address, i.cluster.name, n, total, want)
		}
	}
	return nil
}

func (h *history) lastError() (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.err != nil {
			err = c.err
		}
	}
	return err
}

// expectedShares returns the share of calls that each instance should have.
func (h *history) expectedShares() map[*testInstance]float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	due, left := map[*testInstance]float64{}, 1.0
	for priority := uint32(0); priority < 3; priority++ {
		var level []*testCluster
		furthest, total, below := 0.0, 0.0, false
		for _, c := range h.clusters {
			if !c.reachable() {
				continue
			}
			if c.priority == priority {
				level = append(level, c)
				furthest = max(furthest, c.percent())
				total += float64(c.weight) * c.percent()
			}
			below = below || c.priority > priority
		}
		if len(level) == 0 {
			continue
		}
		takes := left
		if below {
			takes *= furthest
		}
		for _, c := range level {
			for _, i := range c.instances {
				due[i] = takes * float64(c.weight) * c.percent() / total / float64(len(c.instances))
			}
		}
		left -= takes
	}
	if len(due) == 0 {
		return nil // no instance is reachable
	}
	for _, c := range h.clusters {
		for _, i := range c.instances {
			due[i] += 0 // the others should have none
		}
	}
	return due
}

func (c *testCluster) percent() float64 {
	if c.ramp == 0 {
		return 1
	}
	return float64(c.ramp) / 100
}

func (c *testCluster) reachable() bool {
	up := len(c.gateways) == 0
	for _, g := range c.gateways {
		up = up || g.stop != nil
	}
	return up && c.weight > 0 && c.state != catalog.LeaseExpired && len(c.instances) > 0
}

// checkCalls returns an error for a call that broke an invariant.
func (h *history) checkCalls() error {
	for id, c := range h.calls {
		grace := viewGrace + 10*h.pauses.Longest(c.began.Add(-viewGrace))
		for _, r := range c.executions {
			if !h.viewLedTo(r.address, c.began.Add(-grace), r.at) {
				return fmt.Errorf("call %d began at %s in %s, where no view led", id, r.at.Format("05.000"), r.address)
			}
		}
		repeats := h.retry && !c.proxied
		if most := 1; len(c.executions) > most && (!repeats || len(c.executions) > most+1) {
			return fmt.Errorf("call %d ran %d times, and repeats are wanted: %v", id, len(c.executions), repeats)
		}
		if status.Code(c.err) == codes.Canceled || c.err != nil && strings.Contains(c.err.Error(), "bypassed") {
			return fmt.Errorf("call %d, from %s to %s: %w", id, c.began.Format("05.000"), c.ended.Format("05.000"), c.err)
		}
		cut := c.faults
		if repeats {
			cut-- // the call is repeated once
		}
		if c.err != nil && len(c.executions) == 0 && c.hadPath && cut <= 0 {
			return fmt.Errorf("call %d (proxied: %v) failed, from %s to %s, never began, and %s was there: %w",
				id, c.proxied, c.began.Format("05.000"), c.ended.Format("05.000"), c.path, c.err)
		}
	}
	return nil
}

// viewLedTo reports whether a view led to an instance at some time between begin and end.
func (h *history) viewLedTo(address string, begin, end time.Time) bool {
	for n, s := range h.published {
		if s.leads[address] && !s.at.After(end) && (n+1 == len(h.published) || h.published[n+1].at.After(begin)) {
			return true
		}
	}
	return false
}

// checkClosed returns an error if Close left something behind.
func (h *history) checkClosed() error {
	for what, n := range map[string]int{
		"connections that are watched": len(h.watcher.conns), "addresses": len(h.remotes.byAddress), "host names": len(h.hosts.known), "channels": len(h.channels),
	} {
		if n > 0 {
			return fmt.Errorf("%d %s are left after Close", n, what)
		}
	}
	return nil
}
