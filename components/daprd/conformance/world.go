package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
)

// port is the internal gRPC port of every sidecar, but for the check of ports. It is below those that
// systems give to outgoing connections.
const port = 3502

// limit is how long a call may take that should not wait for anything.
const limit = 10 * time.Second

// world is where a resolver is tested.
type world struct {
	Setup
	newResolver   func() nr.Resolver
	configuration any
	limit         time.Duration
	run           string       // in all app-ids, so that two runs on one network don't meet
	apps, places  atomic.Int64 // made so far
}

func newWorld(t *testing.T, newResolver func() nr.Resolver, setup Setup) *world {
	w := &world{Setup: setup, newResolver: newResolver, run: strconv.Itoa(os.Getpid())}
	w.Patience = max(w.Patience, 1)
	w.limit, w.Within = w.patient(limit), w.patient(cmp.Or(w.Within, 10*time.Second))
	if w.IP == nil {
		w.IP = func(n int) string { return fmt.Sprintf("127.0.%d.%d", 1+n/250, 1+n%250) }
	}
	if w.IPv6 == "" {
		w.IPv6 = "::1"
	}
	if w.Endpoints == nil {
		w.Endpoints = func(ctx context.Context, _ nr.Resolver, answer string) ([]string, error) { return byDNS(ctx, answer) }
	}
	if w.Start != nil {
		w.configuration = w.Start(t)
	}
	return w
}

// patient is how long something may take on this machine.
func (w *world) patient(d time.Duration) time.Duration { return time.Duration(w.Patience) * d }

// app is the id of an app that nothing else in the run uses.
func (w *world) app(name string) string {
	return fmt.Sprintf("%s-%s-%d", name, w.run, w.apps.Add(1))
}

// instance is one of an app, at an address of its own.
func (w *world) instance(app string) nr.Instance {
	n := int(w.places.Add(1))
	return nr.Instance{AppID: app, Namespace: "shop", Address: w.IP(n), DaprInternalPort: port, AppPort: 8080}
}

func (w *world) metadata(i nr.Instance) nr.Metadata {
	return nr.Metadata{Instance: i, Configuration: w.configuration}
}

// subject is a resolver under test after Init, as that of a sidecar of an app that calls others.
type subject struct {
	nr.Resolver
	t     *testing.T
	w     *world
	self  nr.Instance
	never []string // endpoints that no call may go to: the check fails at once
	close func() error
}

// start makes a resolver and calls Init. The resolver is closed with the test.
func (w *world) start(t *testing.T) *subject {
	t.Helper()
	s := &subject{Resolver: w.newResolver(), t: t, w: w, self: w.instance(w.app("caller"))}
	s.self.DaprHTTPPort = serveHealth(t, s.self.Address)
	// As daprd does, whose runtime ends that context before it closes the resolver.
	ctx, cancel := context.WithCancel(context.Background())
	bounded(t, w.limit, "Init", func() {
		if err := s.Init(ctx, w.metadata(s.self)); err != nil {
			t.Errorf("Init: %v", err)
		}
	})
	closed := false
	s.close = func() (err error) {
		if !closed {
			closed = true
			cancel()
			err = s.Close()
		}
		return err
	}
	t.Cleanup(func() { bounded(t, w.limit, "Close", func() { _ = s.close() }) })
	if t.Failed() {
		t.FailNow()
	}
	return s
}

// register makes an instance known: by a sidecar, or as the platform does.
func (w *world) register(t *testing.T, i nr.Instance) (remove func()) {
	t.Helper()
	if w.Register != nil {
		return w.Register(t, i)
	}
	return w.sidecar(t, i).leave
}

// request asks for an app as daprd does for a caller in namespace shop.
func request(app string) nr.ResolveRequest {
	return nr.ResolveRequest{ID: app, Namespace: "shop", Port: port}
}

// find looks an app up, and returns the endpoints that a call would go to.
func (s *subject) find(ctx context.Context, req nr.ResolveRequest) ([]string, error) {
	answer, err := s.ResolveID(ctx, req)
	if err != nil {
		return nil, err
	}
	if answer == "" {
		return nil, errors.New("the answer is empty")
	}
	if _, _, err := net.SplitHostPort(answer); err != nil {
		s.t.Fatalf("the answer is no host:port: %v", err)
	}
	endpoints, err := s.w.Endpoints(ctx, s.Resolver, answer)
	if err != nil {
		return nil, fmt.Errorf("answer %q: %w", answer, err)
	}
	return endpoints, nil
}

// byDNS returns the endpoints of an address, whose host may be a name.
func byDNS(ctx context.Context, answer string) ([]string, error) {
	host, port, err := net.SplitHostPort(answer)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	endpoints := make([]string, len(ips))
	for i, ip := range ips {
		endpoints[i] = net.JoinHostPort(ip.Unmap().String(), port)
	}
	return endpoints, nil
}

func endpointOf(i nr.Instance) string {
	return net.JoinHostPort(i.Address, strconv.Itoa(i.DaprInternalPort))
}

// samples is how many lookups in a row show where calls go.
const samples = 24

// goesTo tells where calls to an app go now; the error says why some go nowhere.
func (s *subject) goesTo(req nr.ResolveRequest) (endpoints []string, err error) {
	for range samples {
		ctx, cancel := context.WithTimeout(context.Background(), s.w.limit)
		found, e := s.find(ctx, req)
		cancel()
		if e != nil {
			return nil, e
		}
		for _, endpoint := range found {
			if slices.Contains(s.never, endpoint) {
				s.t.Fatalf("a call to %s in %s goes to %s", req.ID, req.Namespace, endpoint)
			}
		}
		endpoints = append(endpoints, found...)
	}
	slices.Sort(endpoints)
	return slices.Compact(endpoints), nil
}

// awaitOnly waits until calls to an app go to these instances, to each and to no other. Without any,
// they must fail.
func (s *subject) awaitOnly(within time.Duration, req nr.ResolveRequest, instances ...nr.Instance) {
	s.t.Helper()
	var want []string
	for _, i := range instances {
		want = append(want, endpointOf(i))
	}
	slices.Sort(want)
	var got []string
	var err error
	eventually(s.t, within, func() bool {
		got, err = s.goesTo(req)
		if len(want) == 0 {
			return err != nil
		}
		return err == nil && slices.Equal(got, want)
	}, func() string { return fmt.Sprintf("calls to %s go to %q (%v), want %q", req.ID, got, err, want) })
}

// eventually waits until something is so, and fails the test otherwise.
func eventually(t *testing.T, within time.Duration, is func() bool, why func() string) {
	t.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, why())
		}
	}
}

// bounded runs f, and fails the test if f panics or takes longer. It returns how long f took.
func bounded(t *testing.T, within time.Duration, what string, f func()) time.Duration {
	t.Helper()
	begun, done := time.Now(), make(chan string, 1)
	go func() {
		var panicked string
		defer func() {
			if p := recover(); p != nil {
				panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			done <- panicked
		}()
		f()
	}()
	select {
	case panicked := <-done:
		if panicked != "" {
			t.Errorf("%s panics: %s", what, panicked)
		}
	case <-time.After(within):
		t.Errorf("%s has not returned after %s", what, within)
	}
	return time.Since(begun)
}
