package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// load is calls made at a steady pace, whether or not those before are answered, and what
// came of them.
type load struct {
	name     string // no other load has it
	deadline time.Duration
	stop     context.CancelFunc
	users    sync.WaitGroup
	callers  []*caller
}

// caller is one app that calls another.
type caller struct {
	from *sandbox.Sidecar
	to   string           // app-id
	conn *grpc.ClientConn // to the sidecar's gRPC API, while a load runs
	free chan struct{}

	mu    sync.Mutex
	calls []call
}

// call is one call that has ended.
type call struct {
	method       string // that was called, which no other call has: so that apps can tell them apart
	kind         kind
	begun, ended time.Time
	by           string // "cluster number" of the instance that answered
	err          error
}

const (
	// pace is the time from one call of a caller to its next.
	pace = 20 * time.Millisecond
	// deadline is when a call counts as failed, unless a test says otherwise.
	deadline = time.Second
	// underWay is how many calls of a caller can be: more than begin within ten seconds.
	underWay = 600
)

// kind is how a call is made. Callers take turns.
type kind int

const (
	get     kind = iota // by the sidecar's HTTP API
	post                // the same
	proxied             // by gRPC, as clients do that know nothing of Dapr
	kinds
)

func (k kind) String() string { return [...]string{"GET", "POST", "gRPC"}[k] }

// takes is how long an app takes for a call, so that some are under way at any time.
const takes = 5 * time.Millisecond

// untraced is the context of a trace that nobody records, so that lookups go the way
// that they go in production most often.
var untraced = http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}}

// calling makes a caller of a sidecar.
func calling(from *sandbox.Sidecar, to string) *caller {
	return &caller{from: from, to: to, free: make(chan struct{}, underWay)}
}

// startLoad has the callers call until the load or the test ends.
func startLoad(t *testing.T, name string, deadline time.Duration, callers ...*caller) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{name: name, deadline: deadline, stop: stop, callers: callers}
	for i, c := range callers {
		var err error
		if c.conn, err = c.from.Dial(); err != nil {
			t.Fatal(err)
		}
		l.users.Go(func() {
			defer func() { _ = c.conn.Close() }()
			time.Sleep(pace * time.Duration(i) / time.Duration(len(callers))) // not in step
			l.run(ctx, c, i)
		})
	}
	t.Cleanup(l.end)
	return l
}

// run begins a call at each tick, and returns when all have ended.
func (l *load) run(ctx context.Context, c *caller, number int) {
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for count := 0; ; count++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.free <- struct{}{}
		begun := time.Now()
		calls.Go(func() {
			defer func() { <-c.free }()
			// A call under way when the load ends is waited for.
			limit, cancel := context.WithDeadline(context.WithoutCancel(ctx), begun.Add(l.deadline))
			defer cancel()
			made := call{method: fmt.Sprintf("%s/%d/%d", l.name, number, count), kind: kind(count % int(kinds)), begun: begun}
			reply, err := c.call(limit, made.kind, made.method)
			made.ended, made.err = time.Now(), err
			if err == nil {
				made.by = reply.Instance
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls = append(c.calls, made)
		})
	}
}

// call makes one call.
func (c *caller) call(ctx context.Context, k kind, method string) (*sandbox.Reply, error) {
	query := method + "?takes=" + takes.String()
	switch k {
	case get:
		return c.from.Invoke(ctx, c.to, query, untraced)
	case post:
		return c.from.Post(ctx, c.to, query, `{"item":"book","count":2}`, untraced)
	default:
		return sandbox.ProxyNamed(ctx, c.conn, c.to, method, map[string]string{"takes": takes.String(), "traceparent": untraced.Get("traceparent")})
	}
}

// end stops the calls and waits for those under way.
func (l *load) end() {
	l.stop()
	l.users.Wait()
}

// of are the calls of the callers so far, by the time of their end.
func of(callers ...*caller) calls {
	var all calls
	for _, c := range callers {
		c.mu.Lock()
		all = append(all, c.calls...)
		c.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b call) int { return a.ended.Compare(b.ended) })
	return all
}
