package stream_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// daprd is the component as daprd runs it, following a service.
type daprd struct {
	*nameresolution.Resolver
	t testing.TB
}

// sidecarOf starts the component as a sidecar of app at 127.0.0.1:port.
func sidecarOf(t testing.TB, address string, app catalog.App, port int, more map[string]any) *daprd {
	t.Helper()
	return sidecarWith(t, quiet, address, app, port, more)
}

func sidecarWith(t testing.TB, log *slog.Logger, address string, app catalog.App, port int, more map[string]any) *daprd {
	t.Helper()
	return sidecarFrom(t, nameresolution.Options{Logger: log}, address, app, port, more)
}

func sidecarFrom(t testing.TB, o nameresolution.Options, address string, app catalog.App, port int, more map[string]any) *daprd {
	t.Helper()
	configuration := map[string]any{
		"resolver": address, "cluster": "west", "identity": map[string]any{"insecure": true}, "resolveTimeout": "5s",
	}
	for key, value := range more {
		configuration[key] = value
	}
	r := nameresolution.New(o)
	if err := r.Init(t.Context(), configuration, nameresolution.Instance{App: app, Address: "127.0.0.1", Port: port}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &daprd{r, t}
}

// finds waits until a lookup ends with want: an address, or the text of an outcome.
func (d *daprd) finds(app catalog.App, want string) {
	d.t.Helper()
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		address, err := d.ResolveID(context.Background(), app)
		if got = address; err != nil {
			got, _, _ = strings.Cut(err.Error(), ":")
		}
		if got == want {
			return
		}
	}
	d.t.Fatalf("%s is %s, want %s", app, got, want)
}

func TestSidecarsFindEachOther(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	c := sidecarOf(t, s.address, checkout, 50001, nil)
	c.finds(orders, "unavailable")
	c.finds(ledger, "denied")
	o := sidecarOf(t, s.address, orders, 50002, nil)
	c.finds(orders, "127.0.0.1:50002")
	o.finds(orders, "127.0.0.1:50002")
	o.finds(checkout, "127.0.0.1:50001") // no selection: any app of this cluster
	o.finds(ledger, "not found")
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	c.finds(orders, "unavailable")
	s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selection(checkout, ledger)}}})
	c.finds(orders, "denied")
}

func TestASidecarOutlivesTheService(t *testing.T) {
	dir := t.TempDir()
	cfg := stream.Config{Snapshot: filepath.Join(dir, "instances.json"), RejoinTimeout: patience}
	s := start(t, cfg, anAddress(t), selection(checkout, orders))
	more := map[string]any{"lastGood": filepath.Join(dir, "checkout.view")}
	c := sidecarOf(t, s.address, checkout, 50001, more)
	o := sidecarOf(t, s.address, orders, 50002, nil)
	c.finds(orders, "127.0.0.1:50002")
	s.stop()
	c.finds(orders, "127.0.0.1:50002")

	// daprd starts again while the service is away.
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(more["lastGood"].(string))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the last good view: %v, %v", info, err)
	}
	c = sidecarOf(t, s.address, checkout, 50001, more)
	if address, err := c.ResolveID(t.Context(), orders); err != nil || address != "127.0.0.1:50002" {
		t.Fatalf("while the service is away: %s, %v", address, err)
	}
	if d := c.Explain(t.Context(), orders); !strings.Contains(d.Reason, "not being updated") {
		t.Errorf("an old view is not said to be old: %q", d.Reason)
	}

	// The service restarts, and no instance is withdrawn before the sidecars reconnect.
	again := start(t, cfg, s.address, selection(checkout, orders))
	for range 100 {
		if d := again.topology.Resolve(checkout, orders); d.Address != "127.0.0.1:50002" {
			t.Fatalf("after the restart: %+v", d)
		}
		time.Sleep(time.Millisecond)
	}
	c.finds(orders, "127.0.0.1:50002")
	again.instances(ledger, "10.0.0.3:50002")
	o.finds(ledger, "10.0.0.3:50002")
}

func TestDrainLeavesViewsBeforeItReturns(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	o := sidecarOf(t, s.address, orders, 50002, nil)
	c := sidecarOf(t, s.address, checkout, 50001, nil)
	c.finds(orders, "127.0.0.1:50002")
	if err := o.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := s.topology.Resolve(checkout, orders); d.Outcome != catalog.Unavailable {
		t.Errorf("after Drain the service says %+v", d)
	}
	c.finds(orders, "unavailable")
	o.finds(checkout, "127.0.0.1:50001") // lookups go on
	if err := o.Drain(t.Context()); err != nil {
		t.Errorf("a second Drain: %v", err)
	}
}

// daprd starts beside its app, and often before it.
func TestASidecarIsInNoViewBeforeItIsReady(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	c := sidecarOf(t, s.address, checkout, 50001, nil)
	ready := make(chan struct{})
	wait := func(ctx context.Context, turn func(error)) {
		select {
		case <-ready:
			turn(nil)
		case <-ctx.Done():
		}
	}
	o := sidecarFrom(t, nameresolution.Options{Logger: quiet, Health: wait}, s.address, orders, 50002, nil)
	o.finds(checkout, "127.0.0.1:50001") // it has its view
	if d := s.topology.Resolve(checkout, orders); d.Outcome != catalog.Unavailable {
		t.Errorf("before it is ready others are led to it: %+v", d)
	}
	close(ready)
	c.finds(orders, "127.0.0.1:50002")
	if err := o.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.finds(orders, "unavailable")

	never := func(ctx context.Context, _ func(error)) { <-ctx.Done() }
	l := sidecarFrom(t, nameresolution.Options{Logger: quiet, Health: never}, s.address, ledger, 50003, nil)
	l.finds(checkout, "127.0.0.1:50001")
	if err := l.Drain(t.Context()); err != nil {
		t.Errorf("Drain before it is ready: %v", err)
	}
}

// However often its app becomes unready and ready, the last report counts. That holds for a
// service that restarts meanwhile, and when the sidecar drains for good.
func TestASidecarWhoseAppIsIllDrainsAndComesBack(t *testing.T) {
	s := start(t, stream.Config{}, anAddress(t), selection(checkout, orders))
	c := sidecarOf(t, s.address, checkout, 50001, nil)
	turns := make(chan error)
	health := func(ctx context.Context, turn func(error)) {
		for {
			select {
			case err := <-turns:
				turn(err)
			case <-ctx.Done():
				return
			}
		}
	}
	o := sidecarFrom(t, nameresolution.Options{Logger: quiet, Health: health}, s.address, orders, 50002, nil)
	ill := errors.New("connection refused")
	turns <- ill // before it ever was well
	turns <- nil
	c.finds(orders, "127.0.0.1:50002")
	for range 20 {
		turns <- ill
		turns <- nil
	}
	turns <- ill
	c.finds(orders, "unavailable")
	o.finds(checkout, "127.0.0.1:50001")
	turns <- nil
	c.finds(orders, "127.0.0.1:50002")
	turns <- ill
	c.finds(orders, "unavailable")

	s.stop()
	s = start(t, stream.Config{}, s.address, selection(checkout, orders))
	c.finds(orders, "unavailable")
	o.finds(checkout, "127.0.0.1:50001")
	if d := s.topology.Resolve(checkout, orders); d.Outcome != catalog.Unavailable {
		t.Errorf("after a restart of the service others are led to it: %+v", d)
	}
	turns <- nil
	c.finds(orders, "127.0.0.1:50002")
	turns <- ill
	if err := o.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	turns <- nil
	time.Sleep(200 * time.Millisecond)
	c.finds(orders, "unavailable")
}

func TestBeforeTheFirstViewALookupWaitsAndSaysWhy(t *testing.T) {
	nobody := anAddress(t)
	c := sidecarOf(t, nobody, checkout, 50001, map[string]any{"resolveTimeout": "50ms"})
	var err error
	for end := time.Now().Add(patience); err == nil || !strings.Contains(err.Error(), "connection refused"); { // which a busy machine may hear of later
		asked := time.Now()
		if _, err = c.ResolveID(t.Context(), orders); !errors.Is(err, catalog.ErrNotReady) || time.Since(asked) < 50*time.Millisecond || asked.After(end) {
			t.Fatalf("after %s: %v", time.Since(asked), err)
		}
	}
	if own, err := c.ResolveID(t.Context(), checkout); own != "127.0.0.1:50001" || err != nil {
		t.Errorf("its own id is %s, %v", own, err)
	}
	// The next lookup has its answer as soon as there is a view, without a restart.
	s := start(t, stream.Config{}, nobody, selection(checkout, orders))
	s.instances(orders, "10.0.0.1:50002")
	c.finds(orders, "10.0.0.1:50002")
}

func TestASidecarReachesTheServiceThroughASocket(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	s.instances(orders, "10.0.0.1:50002")
	dir, err := os.MkdirTemp("", "isthmus") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "resolver.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	sidecarOf(t, "unix://"+socket, checkout, 50001, nil).finds(orders, "10.0.0.1:50002")
	s.stop()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// daprd is killed and started again at the same address, faster than the service can
// notice.
func TestARestartOfDaprdTakesItsPlaceOver(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	sidecarOf(t, s.address, checkout, 50001, nil).finds(orders, "unavailable")
	sidecarOf(t, s.address, orders, 50002, nil).finds(checkout, "127.0.0.1:50001")
	// The first stays connected, as if half-dead, and fights for its place.
	sidecarOf(t, s.address, orders, 50002, nil).finds(checkout, "127.0.0.1:50001")
	for range 100 {
		if d := s.topology.Resolve(checkout, orders); d.Address != "127.0.0.1:50002" {
			t.Fatalf("while two streams claim one address: %+v", d)
		}
		time.Sleep(time.Millisecond)
	}
}
