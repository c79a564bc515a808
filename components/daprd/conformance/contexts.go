package conformance

import (
	"context"
	"errors"
	"testing"
	"time"
)

var contextChecks = []check{
	{"Context", "Ended", "a lookup returns at once when its context has ended", "", checkEnded},
	{"Context", "Deadline", "a lookup keeps its deadline, also while the server does not answer", "", checkDeadline},
	{"Context", "Cancelled", "a lookup ends when it is cancelled, also while the server does not answer", "", checkCancelled},
	{"Context", "Outage", "finds apps that it knows while its server does not answer", Outage, checkOutage},
}

// late is how much later than its context a lookup may end.
const late = 900 * time.Millisecond

// paused is a resolver whose server does not answer, if it has one.
func (w *world) paused(t *testing.T) *subject {
	t.Helper()
	s := w.start(t)
	if w.Pause != nil {
		resume := w.Pause(t)
		t.Cleanup(resume)
	}
	return s
}

// ends checks that a lookup of an app that was never asked for ends with its context.
func (s *subject) ends(t *testing.T, ctx context.Context, after time.Duration) {
	t.Helper()
	req := request(s.w.app("nobody"))
	if took := bounded(t, s.w.limit, "ResolveID", func() { _, _ = s.ResolveID(ctx, req) }); took > after+s.w.patient(late) {
		t.Errorf("a lookup took %s; its context ended after %s", took, after)
	}
}

func checkEnded(t *testing.T, w *world) {
	s := w.paused(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.ends(t, ctx, 0)
}

func checkDeadline(t *testing.T, w *world) {
	s := w.paused(t)
	const after = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	s.ends(t, ctx, after)
}

func checkCancelled(t *testing.T, w *world) {
	s := w.paused(t)
	const after = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(after, cancel).Stop()
	s.ends(t, ctx, after)
}

func checkOutage(t *testing.T, w *world) {
	if w.Pause == nil {
		t.Skip("the resolver has no server")
	}
	i := w.instance(w.app("orders"))
	w.register(t, i)
	s := w.start(t)
	s.awaitOnly(w.Within, request(i.AppID), i)
	resume := w.Pause(t)
	t.Cleanup(resume)
	bounded(t, w.limit, "ResolveID", func() {
		ctx, cancel := context.WithTimeout(t.Context(), w.patient(time.Second))
		defer cancel()
		answer, err := s.ResolveID(ctx, request(i.AppID))
		if err == nil && answer == "" {
			err = errors.New("the answer is empty")
		}
		if err != nil {
			t.Errorf("a lookup of an app that was found before: %v", err)
		}
	})
}
