package consulapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestChecksFloodNobody: thousands of checks of many apps, each due every second, ask one
// host that has nothing to do with them. They caused 2,565 connections a second there.
func TestChecksFloodNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		began := time.Now()
		seconds := map[int]int{}
		r := lone(nil, "")
		r.targets.prober = probe.New(probe.Config{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if !strings.HasPrefix(address, "192.0.2.7:") {
				return nil, fmt.Errorf("asked %s", address)
			}
			seconds[int(time.Since(began)/time.Second)]++
			ours, theirs := net.Pipe()
			return ours, theirs.Close()
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.run(ctx) }()
		synctest.Wait()
		const apps, checks = 41, 64
		for n := range apps {
			d := &api.AgentServiceRegistration{ID: "x", Name: fmt.Sprint("app-", n), Address: "192.0.2.7", Port: 1}
			for c := range checks {
				d.Checks = append(d.Checks, &api.AgentServiceCheck{CheckID: fmt.Sprint(c), TCP: fmt.Sprint("192.0.2.7:", 1+c), Interval: "1s", Timeout: "1s", Status: passing})
			}
			if err := r.register(ctx, shop(d.Name), d, netip.MustParseAddr("10.0.0.7")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		const rate, burst = 10, 20
		for second, n := range seconds {
			if n > rate+1 && second > 0 || n > rate+burst+1 {
				t.Errorf("%d connections in second %d; want at most %d, and %d more at first", n, second, rate, burst)
			}
		}
		for _, o := range r.all() {
			all, _ := o.roster.Load()
			for _, c := range all.services[0].checks[1:] {
				if c.Status != passing || c.Output == "" {
					t.Errorf("%s, check %s: %s, %q; want one that was asked and passes", o.app, c.CheckID, c.Status, c.Output)
				}
			}
		}
	})
}

// TestACheckOfAnAddressThatIsOnlyNamedIsPlain: it chooses neither a page nor headers, and no
// redirect leads it to one.
func TestACheckOfAnAddressThatIsOnlyNamedIsPlain(t *testing.T) {
	r := lone(nil, "")
	for _, c := range []struct {
		what string
		f    api.AgentServiceCheck
		may  bool
	}{
		{"Dapr's own", api.AgentServiceCheck{HTTP: "http://10.0.0.8:3500/v1.0/healthz?appid=orders"}, true},
		{"Dapr's outbound", api.AgentServiceCheck{HTTP: "http://10.0.0.8:3500/v1.0/healthz/outbound"}, true},
		{"the root", api.AgentServiceCheck{HTTP: "http://10.0.0.8:3500"}, true},
		{"a page", api.AgentServiceCheck{HTTP: "http://10.0.0.8:3500/admin/restart"}, false},
		{"a query", api.AgentServiceCheck{HTTP: "http://10.0.0.8:3500/?restart"}, false},
		{"a Host header", api.AgentServiceCheck{HTTP: "http://10.0.0.8:3500/", Header: map[string][]string{"Host": {"inner.example"}}}, false},
		{"another header", api.AgentServiceCheck{HTTP: "http://10.0.0.8:3500/", Header: map[string][]string{"Authorization": {"x"}}}, false},
		{"a password", api.AgentServiceCheck{HTTP: "http://admin:admin@10.0.0.8:3500/"}, false},
	} {
		if err := r.targets.check(shop("orders"), specOf(t, &c.f), "10.0.0.8", netip.MustParseAddr("10.0.0.7")); (err == nil) != c.may {
			t.Errorf("%s: %v", c.what, err)
		}
		if err := r.targets.check(shop("orders"), specOf(t, &c.f), "10.0.0.8", netip.MustParseAddr("10.0.0.8")); err != nil {
			t.Errorf("%s, of the machine itself: %v", c.what, err)
		}
	}
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked = append(asked, q.URL.Path)
		http.Redirect(w, q, "/admin", http.StatusFound)
	}))
	defer server.Close()
	f := specOf(t, &api.AgentServiceCheck{HTTP: server.URL})
	p := probe.New(probe.Config{Targets: anywhere{}})
	turn, done, err := p.Wait(t.Context(), probe.Subject{App: shop("orders"), Host: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if status, output := f.ask(turn, true); status != critical || output != "HTTP GET "+server.URL+": 302 Found" || len(asked) != 1 {
		t.Errorf("%s %q, asked %q", status, output, asked)
	}
}

// TestTheServiceAsksNoListenerOfItsOwn, for whoever registers, also over a restart.
func TestTheServiceAsksNoListenerOfItsOwn(t *testing.T) {
	r := lone(nil, "")
	r.targets.prober = probe.New(probe.Config{Targets: except(netip.MustParseAddrPort("127.0.0.1:7400"))})
	own := specOf(t, &api.AgentServiceCheck{CheckID: "c", TCP: "127.0.0.1:7400"})
	if err := r.targets.check(shop("orders"), own, "", netip.MustParseAddr("127.0.0.1")); err == nil || !strings.Contains(err.Error(), "the service's own") {
		t.Errorf("registered: %v", err)
	}
	r.restore([]*saved{{Namespace: "shop", App: "orders", Sender: netip.MustParseAddr("127.0.0.1"), Service: &api.AgentServiceRegistration{ID: "x", Name: "orders"},
		Checks: []savedCheck{{"c", &api.HealthCheck{Status: passing}}}, specs: []*checkSpec{own}}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.run(ctx) }()
	serverstest.Await(t, "it is not asked", func() bool {
		all, _ := r.own(shop("orders")).roster.Load()
		return strings.Contains(all.services[0].checks[1].Output, "not asked: the service's own")
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// anywhere lets checks ask loopback, as where that is meant.
type anywhere struct{}

func (anywhere) Instance(netip.AddrPort) error { return nil }
func (anywhere) Direct(netip.AddrPort) error   { return nil }

// except is one listener of the service's own.
type except netip.AddrPort

func (e except) Instance(a netip.AddrPort) error {
	if a == netip.AddrPort(e) {
		return fmt.Errorf("the service's own")
	}
	return nil
}

func (e except) Direct(a netip.AddrPort) error { return e.Instance(a) }
