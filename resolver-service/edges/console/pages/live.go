package pages

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
)

// How often the service is asked while a page is open, and how long a stream to a browser lasts. A
// browser that reads its stream asks again when that ends; another one is gone then.
const (
	watchEvery  = time.Second
	heartbeat   = 5 * time.Second
	writeWithin = 10 * time.Second
	streamLasts = 5 * time.Minute
	mostStreams = 500
)

// watch looks whether the state of the service has changed, once for all browsers, and only while a
// page is open.
type watch struct {
	c     *Console
	state live.Value[state]
	opens chan struct{} // gets a value when the first page opens

	mu      sync.Mutex
	cluster string
	streams int
	lasts   time.Duration   // of a stream
	event   uint64          // the newest that was seen
	extra   uint64          // of changes that the service knows nothing of
	running context.Context // of Run; nil: it does not run
	work    sync.WaitGroup
}

// state is what the service is in, as far as pages tell one from another.
type state struct {
	Revision uint64 `json:"revision"`
	Mark     string `json:"mark"`
	Away     string `json:"away,omitempty"` // why the service does not answer
}

func newWatch(c *Console) *watch {
	return &watch{c: c, opens: make(chan struct{}, 1), lasts: streamLasts}
}

// Run looks after what pages share, until ctx ends.
func (c *Console) Run(ctx context.Context) error { return c.watch.run(ctx) }

// itself is the console where no person asks.
var itself = &login.Session{Person: "isthmus console", Rights: []login.Right{login.Read}}

func (w *watch) run(ctx context.Context) error {
	w.mu.Lock()
	w.running = ctx
	w.mu.Unlock()
	defer w.work.Wait()
	defer func() {
		w.mu.Lock()
		w.running = nil
		w.mu.Unlock()
	}()
	for {
		w.mu.Lock()
		idle := w.streams == 0
		w.mu.Unlock()
		if idle {
			select {
			case <-w.opens:
			case <-ctx.Done():
				return nil
			}
		}
		w.look(ctx)
		if !live.Sleep(ctx, watchEvery) {
			return nil
		}
	}
}

// look asks the service once.
func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, slowest)
	defer cancel()
	ctx = w.c.As(ctx, itself)
	now := time.Now()
	answer, err := v1alpha1.NewStatusClient(w.c.Conn).Status(ctx, &v1alpha1.StatusRequest{})
	newest := uint64(0)
	if err == nil {
		stream, failed := v1alpha1.NewInventoryClient(w.c.Conn).Events(ctx, &v1alpha1.EventsRequest{SinceUnixMs: now.Add(-3 * watchEvery).UnixMilli()})
		err = receive(stream, failed, func(m *v1alpha1.EventsResponse) {
			for _, e := range m.GetEvents() {
				newest = e.GetNumber()
			}
		})
	}
	if ctx.Err() == context.Canceled {
		return
	}
	w.mu.Lock()
	if err != nil {
		last, _ := w.state.Load()
		w.state.Store(state{last.Revision, last.Mark, w.c.Explain(err).Error()})
	}
	w.event = max(w.event, newest)
	w.mu.Unlock()
	if err == nil {
		w.saw(answer)
	}
}

// saw takes a status that was asked for anyway.
func (w *watch) saw(s *v1alpha1.StatusResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cluster = s.GetCluster()
	next := state{Revision: s.GetRevision(), Mark: markOf(s, w.event, w.extra)}
	if last, ok := w.state.Load(); !ok || last != next {
		w.state.Store(next)
	}
}

// changed says that something is new that the service knows nothing of.
func (w *watch) changed() {
	w.mu.Lock()
	w.extra++
	w.mu.Unlock()
}

// newest is the cluster's name and the mark of the newest state.
func (w *watch) newest() (cluster, mark string) {
	s, _ := w.state.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cluster, s.Mark
}

// begin makes a context for work that goes on after a page was answered; false while the console ends.
func (w *watch) begin(as func(context.Context, *login.Session) context.Context, s *login.Session) (ctx context.Context, done func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == nil || w.running.Err() != nil {
		return nil, nil, false
	}
	w.work.Add(1)
	ctx, cancel := context.WithTimeout(as(w.running, s), slowest)
	return ctx, func() { cancel(); w.work.Done() }, true
}

// markOf is equal for two states that pages show alike. It knows no moments, which differ each time.
func markOf(s *v1alpha1.StatusResponse, event, extra uint64) string {
	h := sha256.New()
	say := func(all ...any) { fmt.Fprintln(h, all...) }
	say(s.GetRevision(), event, extra, s.GetStartedUnixMs(), s.GetIdentityError(), s.GetStore().GetReady(), s.GetStore().GetError(), s.GetStreams())
	for _, o := range s.GetRefused() {
		say(o.GetSource(), o.GetError())
	}
	for _, o := range s.GetSources() {
		say(o.GetName(), o.GetReady(), o.GetError(), o.GetInstances())
	}
	for _, f := range s.GetCallFaults() {
		say(show.FaultName(f), f.GetCheck(), f.GetCluster(), f.GetOutcome(), f.GetLevel(), f.GetWhy())
	}
	for _, p := range s.GetPeers() {
		say(p.GetCluster(), p.GetState(), p.GetError(), p.GetHears(), p.GetExports(), p.GetReady(), p.GetLapses(), p.GetDampedUntilUnixMs() != 0, p.GetUnreachedBy(), p.GetVersion(), p.GetAskedBy() > 0)
		for _, g := range p.GetGateways() {
			say(g.GetAddress(), g.GetState())
		}
	}
	now := time.Now()
	for _, t := range s.GetTrust() {
		say(t.GetFingerprint(), t.GetError(), show.CertificateState(t, now))
	}
	for _, u := range s.GetDns().GetUpstreams() {
		say(u.GetAddress(), u.GetUp())
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// enter counts a stream; it refuses one too many.
func (w *watch) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams >= mostStreams {
		return false
	}
	if w.streams++; w.streams == 1 {
		select {
		case w.opens <- struct{}{}:
		default:
		}
	}
	return true
}

func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams--
}

// serve streams states to a browser as server-sent events, whose ID is the revision.
func (w *watch) serve(to http.ResponseWriter, r *http.Request) {
	if login.SessionOf(r.Context()) == nil {
		http.Error(to, "no session", http.StatusUnauthorized)
		return
	}
	if !w.enter() {
		http.Error(to, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer w.leave()
	to.Header().Set("Content-Type", "text/event-stream")
	to.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(to)
	end := time.After(w.lasts)
	for {
		s, _, more := w.state.Follow()
		if s.Mark != "" || s.Away != "" {
			text, err := json.Marshal(s)
			if err == nil {
				_ = control.SetWriteDeadline(time.Now().Add(writeWithin))
				_, err = fmt.Fprintf(to, "id: %s\nevent: state\ndata: %s\n\n", strconv.FormatUint(s.Revision, 10), text)
			}
			if err != nil || control.Flush() != nil {
				return
			}
		}
		select {
		case <-more:
		case <-time.After(heartbeat):
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}
