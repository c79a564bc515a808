package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	orders = catalog.App{Namespace: "shop", ID: "orders"}
	ledger = catalog.App{Namespace: "finance", ID: "ledger"}
	victim = netip.MustParseAddr("192.0.2.7")
)

// begun counts checks by the second in which they begin, and how many are under way.
type begun struct {
	mu      sync.Mutex
	since   time.Time
	seconds map[int]int
	by      map[catalog.App]int
	running int
	most    int
}

func newBegun() *begun {
	return &begun{since: time.Now(), seconds: map[int]int{}, by: map[catalog.App]int{}}
}

// run asks again and again, as long as each time takes.
func (b *begun) run(ctx context.Context, p *Prober, s Subject, takes, pause time.Duration) {
	for ctx.Err() == nil {
		_, done, err := p.Wait(ctx, s)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.seconds[int(time.Since(b.since)/time.Second)]++
		b.by[s.App]++
		b.running++
		b.most = max(b.most, b.running)
		b.mu.Unlock()
		time.Sleep(takes)
		b.mu.Lock()
		b.running--
		b.mu.Unlock()
		done()
		time.Sleep(pause)
	}
}

// TestRates has far more checks than a limit lets through.
func TestRates(t *testing.T) {
	elsewhere := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
	app := func(n int) catalog.App { return catalog.App{Namespace: "shop", ID: fmt.Sprint("app-", n)} }
	for _, c := range []struct {
		name    string
		limit   limit
		checks  int
		subject func(n int) Subject
	}{
		{"one host that is only named", ofHostUnverified, 4000, func(n int) Subject { return Subject{App: app(n), Host: victim, Unverified: true} }},
		{"one app that names others", ofAppUnverified, 4000, func(n int) Subject { return Subject{App: orders, Host: elsewhere(n), Unverified: true} }},
		{"one host", ofHost, 4000, func(n int) Subject { return Subject{App: app(n), Host: victim} }},
		{"one host, written as IPv6", ofHost, 4000, func(n int) Subject { return Subject{App: app(n), Host: netip.AddrFrom16(victim.As16())} }},
		{"one app", ofApp, 8000, func(n int) Subject { return Subject{App: orders, Host: elsewhere(n)} }},
		{"all", ofAll, 8000, func(n int) Subject { return Subject{App: app(n), Host: elsewhere(n)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				p, b := New(Config{}), newBegun()
				var all sync.WaitGroup
				for n := range c.checks {
					all.Go(func() { b.run(ctx, p, c.subject(n), 0, 500*time.Millisecond) })
				}
				const seconds = 8
				time.Sleep(seconds*time.Second - time.Nanosecond)
				cancel()
				all.Wait()
				total := 0
				for second, n := range b.seconds {
					total += n
					if most := c.limit.rate + 1; second > 0 && n > most || n > most+c.limit.burst {
						t.Errorf("%d began in second %d; want at most %d, and %d more at first", n, second, most, c.limit.burst)
					}
				}
				if least := c.limit.rate * (seconds - 1); total < least {
					t.Errorf("%d began in %d s; want %d at least", total, seconds, least)
				}
				if n := len(p.gates.all); n > 3*c.checks {
					t.Errorf("%d gates are kept", n)
				}
			})
		})
	}
}

// TestLateAndNeverLost checks that each of many waiting checks runs. An app with thousands of
// checks does not delay those of another app at the same host.
func TestLateAndNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		var began atomic.Int64
		var all sync.WaitGroup
		for range 3000 {
			all.Go(func() {
				_, done, err := p.Wait(t.Context(), Subject{App: orders, Host: victim})
				if err != nil {
					t.Error(err)
					return
				}
				began.Add(1)
				time.Sleep(time.Second)
				done()
			})
		}
		synctest.Wait()
		start := time.Now()
		_, done, err := p.Wait(t.Context(), Subject{App: ledger, Host: victim})
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > 3*time.Second {
			t.Errorf("the check of another app waited %s", waited)
		}
		done()
		all.Wait()
		if began.Load() != 3000 {
			t.Errorf("%d began", began.Load())
		}
		if n := len(p.gates.all); n > 4 {
			t.Errorf("%d gates are left", n)
		}
	})
}

// TestUnderWay bounds checks without an answer. Failing checks don't delay those that are
// answered.
func TestUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p, silent, well := New(Config{}), newBegun(), newBegun()
		var all sync.WaitGroup
		for n := range 1000 {
			host := netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
			all.Go(func() { silent.run(ctx, p, Subject{App: orders, Host: host, Failing: true}, time.Minute, 0) })
		}
		for n := range 10 {
			host := netip.AddrFrom4([4]byte{10, 2, 0, byte(n)})
			all.Go(func() { well.run(ctx, p, Subject{App: orders, Host: host}, 0, time.Second) })
		}
		time.Sleep(time.Minute - time.Nanosecond)
		cancel()
		all.Wait()
		if silent.most != ofApp.atOnce {
			t.Errorf("%d were under way, want %d", silent.most, ofApp.atOnce)
		}
		if n := well.by[orders]; n < 590 {
			t.Errorf("those that answer were asked %d times, want 600", n)
		}
	})
}

// TestWhoGivesUpLeavesNothing checks that a canceled check frees its place and its token.
func TestWhoGivesUpLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		s := Subject{App: orders, Host: victim, Unverified: true}
		cause := errors.New("deregistered")
		for range 50 {
			ctx, cancel := context.WithCancelCause(t.Context())
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					_, done, err := p.Wait(ctx, s)
					if err == nil {
						<-ctx.Done()
						done()
					} else if !errors.Is(err, cause) {
						t.Error(err)
					}
				})
			}
			time.Sleep(time.Millisecond)
			cancel(cause)
			all.Wait()
		}
		start := time.Now()
		_, done, err := p.Wait(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > time.Second {
			t.Errorf("waited %s for those that have given up", waited)
		}
		done()
		time.Sleep(time.Minute)
		for range 2 * sweepFrom { // long after
			_, done, _ := p.Wait(t.Context(), s)
			done()
		}
		if n := len(p.gates.all); n > 3 {
			t.Errorf("%d gates are kept", n)
		}
	})
}

// dev allows loopback, and has a listener of the service's own.
type dev struct{ listener netip.AddrPort }

func (d dev) Instance(a netip.AddrPort) error {
	if a == d.listener {
		return errors.New("it is the service's own")
	}
	return (*destination.Rules)(nil).Instance(a)
}

func (d dev) Direct(a netip.AddrPort) error { return d.Instance(a) }

func TestTargets(t *testing.T) {
	own := netip.MustParseAddrPort("10.0.0.1:7400")
	for _, c := range []struct {
		at      string
		local   bool
		targets Targets
		want    string // of the error; empty: it is asked
	}{
		{"10.0.0.5:3500", false, nil, ""},
		{"[fd00::1]:3500", false, nil, ""},
		{"127.0.0.1:3500", false, nil, "loopback"},
		{"[::ffff:127.0.0.1]:3500", false, nil, "loopback"},
		{"[::1]:3500", false, nil, "loopback"},
		{"127.0.0.1:3500", true, nil, ""},
		{"127.0.0.1:3500", false, dev{}, ""},
		{"169.254.169.254:80", true, nil, "link-local"},
		{"[::ffff:169.254.169.254]:80", true, nil, "link-local"},
		{"[fe80::1]:80", true, nil, "link-local"},
		{"0.0.0.0:80", true, nil, "names no host"},
		{"[::]:80", true, nil, "names no host"},
		{"224.0.0.1:80", true, nil, "multicast"},
		{"[ff02::1]:80", true, nil, "multicast"},
		{"255.255.255.255:80", true, nil, "broadcast"},
		{"10.0.0.5:0", true, nil, "no port"},
		{own.String(), false, dev{own}, "own"},
		{own.String(), true, dev{own}, "own"},
	} {
		t.Run(c.at, func(t *testing.T) {
			at := netip.MustParseAddrPort(c.at)
			var dialled string
			p := New(Config{Targets: c.targets, Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				dialled = address
				ours, theirs := net.Pipe()
				return ours, theirs.Close()
			}})
			turn, done, err := p.Wait(t.Context(), Subject{App: orders, Host: at.Addr(), Local: c.local})
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			err = TCP(turn, c.at, nil)
			if c.want == "" {
				if want := netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String(); err != nil || dialled != want {
					t.Errorf("%v, asked %q, want %q", err, dialled, want)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) || dialled != "" {
				t.Errorf("%v, asked %q, want an error with %q", err, dialled, c.want)
			}
		})
	}
}

// TestNobodyElseIsAsked checks that no check reaches another host: by a name, which is not
// resolved, by a redirect, or without Wait.
func TestNobodyElseIsAsked(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if asked.Add(1) == 1 {
			http.Redirect(w, q, "http://elsewhere.example:"+q.URL.Query().Get("port")+"/", http.StatusFound)
		}
	}))
	defer server.Close()
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	var dialled []string
	p := New(Config{Targets: dev{}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	start := time.Now()
	turn, done, err := p.Wait(t.Context(), Subject{App: orders, Host: at.Addr(), Unverified: true})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	client := &http.Client{Transport: Transport(nil)}
	ask := func(ctx context.Context) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://somewhere.example:%d/?port=%d", at.Port(), at.Port()), nil)
		if err != nil {
			return err
		}
		a, err := client.Do(q)
		if err == nil {
			a.Body.Close()
		}
		return err
	}
	if err := ask(turn); err != nil || fmt.Sprint(dialled) != fmt.Sprint([]string{at.String(), at.String()}) {
		t.Errorf("%v, asked %q, want %s twice", err, dialled, at)
	}
	if n := p.gates.all[key{host: at.Addr(), unverified: true}].full.Sub(start); n < 2*ofHostUnverified.token() {
		t.Errorf("what a redirect costs is not counted: %s", n)
	}
	if err := ask(t.Context()); !errors.Is(err, errNotAdmitted) {
		t.Errorf("asked without a turn: %v", err)
	}
	if err := GRPC(t.Context(), at.String(), "", nil); !errors.Is(err, errNotAdmitted) {
		t.Errorf("asked without a turn: %v", err)
	}
}
