package system

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// callingTraced is calling with a trace that is recorded, so that each lookup leaves a
// span that tells its revision.
func callingTraced(from *sandbox.Sidecar, id string) call {
	return func(ctx context.Context) (string, error) {
		header := http.Header{"Traceparent": {fmt.Sprintf("00-%016x%016x-%016x-01", rand.Uint64(), rand.Uint64(), rand.Uint64())}}
		reply, err := from.Invoke(ctx, id, "hello", header)
		if err != nil {
			return "", err
		}
		return reply.Instance, nil
	}
}

func TestARestartOfTheServiceIsNotFelt(t *testing.T) {
	t.Parallel()
	t.Run("by SIGTERM", func(t *testing.T) {
		t.Parallel()
		testRestart(t, false, 0)
	})
	t.Run("by SIGKILL", func(t *testing.T) {
		t.Parallel()
		// The instances of the former life expire 15 s after the first sidecar is back.
		testRestart(t, true, 16*time.Second)
	})
}

// testRestart ends a service, starts it again, and looks on for some time after.
func testRestart(t *testing.T, kill bool, after time.Duration) {
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, export("shop", "invoices", "west"), export("shop", "orders", "west"))
	m.apply(t, m.west, selection("shop", "checkout", "app: orders, routes: [{cluster: local}]", "app: invoices"))
	m.app(t, m.east, "shop", "invoices")
	m.app(t, m.east, "shop", "orders")
	orders := m.app(t, m.west, "shop", "orders")
	checkout := m.sidecar(t, m.west, sandbox.SidecarOptions{
		App: catalog.App{Namespace: "shop", ID: "checkout"},
		Env: map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "100000"}, // spans that wait for a machine that stands still
	})
	open := m.app(t, m.west, "shop", "open") // no selection
	answers(t, checkout, "orders", "west")
	answers(t, checkout, "invoices", "east")
	answers(t, open, "orders", "west")

	l := startLoad(t, "the service restarts", calling(checkout, "orders"), calling(open, "orders"))
	remote := startLoad(t, "calls of the other cluster meanwhile", callingTraced(checkout, "invoices"))
	l.answersFrom("west")
	end := func() error { return m.west.Stop(meshtest.Within(t, meshtest.Patience)) } // and it saves what stands at last
	if kill {
		m.remembers(t, m.west, orders)
		end = m.west.Kill
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	l.answersFrom("west")
	remote.answersFrom("east")
	if err := m.west.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	t.Logf("the service was away for %s", time.Since(gone).Round(time.Millisecond))
	// Whoever asks first, before the sidecars are back, is not told that they are gone.
	if d, err := m.explain(t, m.west, "shop/open", "orders"); err != nil || d.Outcome != "ok" {
		t.Errorf("right after the restart: %+v, %v, want the instance of before", d, err)
	}
	// A change after it arrives.
	meshtest.Eventually(t, meshtest.Patience, func() error { // as soon as peers have met again
		d, err := m.explain(t, m.west, "shop/checkout", "invoices")
		if err == nil && d.Cluster != "east" {
			err = fmt.Errorf("%+v", d)
		}
		return err
	})
	m.apply(t, m.west, selection("shop", "checkout", "app: orders, routes: [{cluster: east}]", "app: invoices"))
	answers(t, checkout, "orders", "east")
	time.Sleep(after) // for what the service does by the clock
	remote.answersFrom("east")
	l.noneFailed()
	remote.noneFailed()
	m.revisionsNeverGoBack(t, "shop/checkout", remote.answeredBy("east"))
	if d, err := m.explain(t, m.west, "shop/open", "orders"); err != nil || d.Outcome != "ok" {
		t.Errorf("when all should be back: %+v, %v", d, err)
	}
}

// remembers waits until a service has saved an instance, which it does soon after a change
// and not at once: a machine that is slow to write may take long.
func (m *mesh) remembers(t *testing.T, c *sandbox.Cluster, s *sandbox.Sidecar) {
	t.Helper()
	file := filepath.Join(m.Dir(), c.Service.Name(), "instances-"+c.Name+".json")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		text, err := os.ReadFile(file)
		if err == nil && !bytes.Contains(text, []byte(s.Internal)) {
			err = fmt.Errorf("%s has no %s yet", file, s.Internal)
		}
		return err
	})
}

// What a service knew of a peer is gone with a restart, and the peer may be slow to
// tell it again. Sidecars have connections to the other cluster that are well.
func TestARestartWhileAPeerIsSlowToAnswerIsNotFelt(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	way := newRelay(t, m.east.Gateway)
	m.apply(t, m.east, export("shop", "invoices", "west"))
	m.apply(t, m.west, meshtest.Cluster("east", way.address), selection("shop", "checkout", "app: invoices"))
	m.app(t, m.east, "shop", "invoices")
	checkout := m.app(t, m.west, "shop", "checkout")
	answers(t, checkout, "invoices", "east")
	for try := 1; ; try++ {
		l, slow := m.restartWhileSlow(t, way, checkout)
		if n := l.failures(); n == 0 || slow < mustWait || try == stalls.Tries {
			t.Logf("at try %d the peer was heard %s after the restart", try, slow)
			l.noneFailed()
			return
		}
		t.Logf("once more: the machine was slow, and the peer was heard %s after the restart; %s", slow, l.failed[0])
	}
}

// mustWait is how long a service surely waits for its peers' first word: a little less
// than it says it does (docs/explanation/peering.md), since the clock here starts before its own.
const mustWait = 4 * time.Second

// restartWhileSlow makes calls while west's service restarts and its peer says nothing, and
// tells how long after the restart it was heard.
func (m *mesh) restartWhileSlow(t *testing.T, way *relay, checkout *sandbox.Sidecar) (l *load, slow time.Duration) {
	t.Helper()
	l = startLoad(t, "the service restarts, and its peer is slow", calling(checkout, "invoices"))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if way.connections() < 2 { // the peers' own, and that of the calls
			return fmt.Errorf("%d connections through the relay", way.connections())
		}
		return nil
	})
	l.answersFrom("east")

	release := way.hold()
	defer release()
	if err := m.west.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	restarted := time.Now()
	if err := m.west.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // the sidecar comes back, the peer does not answer
	release()
	m.leadsTo(t, m.west, "shop/checkout", "invoices", "east")
	slow = time.Since(restarted)
	l.answersFrom("east")
	l.end()
	return l, slow
}

// revisionsNeverGoBack looks at the spans of a sidecar's lookups in their order.
func (m *mesh) revisionsNeverGoBack(t *testing.T, caller string, lookups int) {
	t.Helper()
	var spans []lookupSpan
	meshtest.Eventually(t, meshtest.Patience, func() error { // daprd sends spans in batches
		if spans = m.lookupSpans("", caller); len(spans) < lookups*9/10 {
			return fmt.Errorf("%d spans of lookups by %s after %d lookups", len(spans), caller, lookups)
		}
		return nil
	})
	slices.SortFunc(spans, func(a, b lookupSpan) int { return cmp.Compare(a.Start, b.Start) })
	seen := map[uint64]bool{}
	for i, s := range spans {
		seen[s.revision] = true
		// Of two lookups at the same time either may be the one that is later.
		for _, before := range spans[:i] {
			if before.End < s.Start && before.revision > s.revision {
				t.Fatalf("%s had revision %d, and %d after it", caller, before.revision, s.revision)
			}
		}
	}
	t.Logf("%d lookups by %s with %d revisions, none older than one before it", len(spans), caller, len(seen))
	if len(seen) < 2 {
		t.Errorf("%s has seen %d revisions, want those before and after", caller, len(seen))
	}
}

func TestASidecarThatRestartsWhileTheServiceIsAwayHasItsLastView(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, export("shop", "invoices", "west"))
	m.apply(t, m.west, selection("shop", "checkout", "app: orders", "app: invoices"))
	m.app(t, m.east, "shop", "invoices")
	orders := m.app(t, m.west, "shop", "orders")
	file := m.Dir() + "/last-good/checkout.view"
	checkout := m.sidecar(t, m.west, sandbox.SidecarOptions{
		App:       catalog.App{Namespace: "shop", ID: "checkout"},
		Component: map[string]any{"lastGood": file},
	})
	answers(t, checkout, "orders", "west")
	answers(t, checkout, "invoices", "east")
	meshtest.Eventually(t, meshtest.Patience, func() error { // soon after a change
		text, err := os.ReadFile(file)
		if err == nil && (!bytes.Contains(text, []byte(orders.Internal)) || !bytes.Contains(text, []byte("invoices.shop.east."))) {
			err = fmt.Errorf("%s has not both addresses yet", file)
		}
		return err
	})
	if err := m.west.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := checkout.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := checkout.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"orders": "west", "invoices": "east"} {
		reply, err := checkout.Invoke(meshtest.Within(t, meshtest.Patience), id, "hello", untraced)
		if err != nil || reply.Cluster != want {
			t.Errorf("%s: %+v, %v, want %s to answer", id, reply, err, want)
		}
	}
	if _, err := checkout.Invoke(meshtest.Within(t, meshtest.Patience), "payments", "hello", untraced); err == nil {
		t.Error("the last view lets more through than the selection")
	}

	// When the service is back, so are changes.
	if err := m.west.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	m.apply(t, m.west, selection("shop", "checkout", "app: invoices"))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if _, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", untraced); err == nil {
			return fmt.Errorf("the change has not arrived")
		}
		return nil
	})
}

// lookupSpan is the span of one lookup.
type lookupSpan struct {
	Start, End uint64
	revision   uint64
	attributes map[string]string
	id, parent string
	failed     bool
	message    string
}

// lookupSpans are those received so far of a trace, "" being all, by a caller.
func (m *mesh) lookupSpans(trace, caller string) []lookupSpan {
	var spans []lookupSpan
	for _, s := range m.traces.Trace(trace) {
		if s.Name != "isthmus.lookup" || s.Attributes["isthmus.caller"] != caller {
			continue
		}
		revision, _ := strconv.ParseUint(s.Attributes["isthmus.revision"], 10, 64)
		spans = append(spans, lookupSpan{s.Start, s.End, revision, s.Attributes, s.ID, s.Parent, s.Failed, s.Message})
	}
	return spans
}
