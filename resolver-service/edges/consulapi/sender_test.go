package consulapi

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// listening has the changes that the topology is told.
type listening struct{ all []string }

func (l *listening) Apply(_ context.Context, c topology.Change) (uint64, error) {
	for _, i := range c.Instances {
		text := ""
		slices.SortFunc(i.Put, func(a, b catalog.Instance) int { return cmp.Compare(a.Since, b.Since) })
		for _, p := range i.Put {
			text += fmt.Sprint(" ", p.ID, " at ", p.Address)
			if p.Unverified {
				text += " unverified"
			}
		}
		for _, key := range i.Delete {
			text += " without " + key.ID
		}
		l.all = append(l.all, text[1:])
	}
	return 1, nil
}

// onHost are the rules of a service on a host that has this address.
func onHost(ip string) *destination.Rules {
	return &destination.Rules{Host: destination.NewHost(func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(24, 32)}}, nil
	})}
}

// TestTheTopologyIsToldWhoSpeaks: of an address that the sender is at, of one that it only
// names, and of what was registered before a restart.
func TestTheTopologyIsToldWhoSpeaks(t *testing.T) {
	dir := t.TempDir()
	told := &listening{}
	r := lone(nil, dir)
	delegates := destination.Delegates{{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}, Apps: []string{"shop/orders"}}}
	r.delegates = delegates
	here := onHost("10.0.0.1")
	r.to, r.targets.rules = told, here
	register := func(id, address, sender string) {
		t.Helper()
		d := &api.AgentServiceRegistration{ID: id, Name: "orders", Address: address, Port: 7, Check: &api.AgentServiceCheck{CheckID: id, TTL: "1h", Status: passing}}
		if err := r.register(t.Context(), shop("orders"), d, netip.MustParseAddr(sender)); err != nil {
			t.Fatal(err)
		}
	}
	says := func(want ...string) {
		t.Helper()
		if got := strings.Join(told.all, ", "); got != strings.Join(want, ", ") {
			t.Errorf("told: %s\nwant: %s", got, strings.Join(want, ", "))
		}
		told.all = nil
	}
	register("own", "10.0.0.7", "10.0.0.7")
	register("own", "10.0.0.7", "10.0.0.7") // once more, which is news: it tells of itself
	register("implied", "", "10.0.0.8")
	register("here", "10.0.0.1", "127.0.0.1")
	register("named", "10.0.0.9", "10.0.0.7")
	register("named", "10.0.0.9", "10.0.0.7")
	register("remote", "10.0.0.1", "10.0.0.7")
	says("own at 10.0.0.7:7", "own at 10.0.0.7:7", "implied at 10.0.0.8:7", "here at 10.0.0.1:7", "named at 10.0.0.9:7 unverified", "named at 10.0.0.9:7 unverified", "remote at 10.0.0.1:7 unverified")
	if err := r.update(t.Context(), shop("orders"), "own", critical, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.deregister(t.Context(), shop("orders"), "implied"); err != nil {
		t.Fatal(err)
	}
	if err := r.deregister(t.Context(), shop("orders"), "remote"); err != nil {
		t.Fatal(err)
	}
	d := &api.AgentServiceRegistration{ID: "after", Name: "checkout", Port: 8} // of another app, with an ID that is before the others
	if err := r.register(t.Context(), shop("checkout"), d, netip.MustParseAddr("10.0.0.7")); err != nil {
		t.Fatal(err)
	}
	says("own at 10.0.0.7:7", "without implied", "without remote", "after at 10.0.0.7:8")

	r = lone(nil, dir)
	r.to, r.targets.rules, r.delegates = told, here, delegates
	r.restore(r.store.load(r.log))
	if err := r.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	says("own at 10.0.0.7:7 here at 10.0.0.1:7 named at 10.0.0.9:7 unverified after at 10.0.0.7:8")
	register("here", "10.0.0.1", "127.0.0.1")
	says("here at 10.0.0.1:7")

	r = lone(nil, dir) // where nobody may register for others any more
	r.to, r.targets.rules = told, here
	r.delegates = nil
	r.restore(r.store.load(r.log))
	if err := r.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	says("own at 10.0.0.7:7 after at 10.0.0.7:8 here at 10.0.0.1:7")
}

// TestWhoRegistersLaterIsLater also after a restart by which the clock was set back.
func TestWhoRegistersLaterIsLater(t *testing.T) {
	dir := t.TempDir()
	register := func(r *registry, app string) {
		t.Helper()
		d := &api.AgentServiceRegistration{ID: app, Name: app, Port: 7}
		if err := r.register(t.Context(), shop(app), d, netip.MustParseAddr("10.0.0.7")); err != nil {
			t.Fatal(err)
		}
	}
	restarted := func() (*registry, *listening) {
		t.Helper()
		r, told := lone(nil, dir), &listening{}
		r.to = told
		r.restore(r.store.load(r.log))
		if err := r.publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r, told
	}
	r := lone(nil, dir)
	r.clock.Heard(time.Now().Add(time.Hour).UnixMilli()) // the clock is ahead
	register(r, "b-former")
	r, _ = restarted() // and is right now
	register(r, "a-later")
	if _, told := restarted(); strings.Join(told.all, ", ") != "b-former at 10.0.0.7:7 a-later at 10.0.0.7:7" {
		t.Errorf("told: %s; want the later one last, which has the address", told.all)
	}
}

// TestACheckElsewhereTellsNothing of what it was answered, but for the status: whoever has a
// token could read by it what this machine can reach.
func TestACheckElsewhereTellsNothing(t *testing.T) {
	var wrote atomic.Bool
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPut {
			wrote.Store(true)
		}
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "a secret")
	}))
	defer secret.Close()
	banner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer banner.Close()
	go func() {
		for {
			c, err := banner.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			fmt.Fprint(c, "SSH-2.0-secret\r\n\r\n")
			c.Close()
		}
	}()
	checks := map[string]*api.AgentServiceCheck{
		"a page":           {HTTP: secret.URL},
		"no page":          {HTTP: "http://" + banner.Addr().String()},
		"grpc of a page":   {GRPC: secret.Listener.Addr().String()},
		"grpc of a banner": {GRPC: banner.Addr().String()},
		"tls of a banner":  {TCP: banner.Addr().String(), TCPUseTLS: true},
		"a write":          {HTTP: secret.URL, Method: "PUT", Body: "x"}, // of a former version
	}
	was := &saved{Namespace: "shop", App: "orders", Sender: netip.MustParseAddr("10.0.0.7"), Service: &api.AgentServiceRegistration{ID: "x", Name: "orders", Address: "127.0.0.1"}}
	for id, c := range checks {
		c.CheckID = id
		was.specs = append(was.specs, specOf(t, c))
		was.Checks = append(was.Checks, savedCheck{id, &api.HealthCheck{Status: critical, Output: "a secret of before"}})
	}
	r := lone(nil, "")
	r.targets.prober = probe.New(probe.Config{Targets: anywhere{}})
	r.restore([]*saved{was})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.run(ctx) }()
	outputs := func() map[string]string {
		all, _ := r.own(shop("orders")).roster.Load()
		outputs := map[string]string{}
		for _, c := range all.services[0].checks[1:] {
			if c.Output != "" {
				outputs[c.CheckID] = c.Output
			}
		}
		return outputs
	}
	serverstest.Await(t, "all are asked", func() bool { return len(outputs()) == len(checks) })
	for id, output := range outputs() {
		want := withheld
		if id == "a page" {
			want = "HTTP GET " + secret.URL + ": 418 I'm a teapot"
		}
		if output != want {
			t.Errorf("%s: %q, want %q", id, output, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if wrote.Load() {
		t.Error("it writes where it may only ask")
	}
}

// TestTheAddressOfThisMachine: one that it has besides loopback is its own to who asks by
// loopback, so that a sidecar's own check shows all.
func TestTheAddressOfThisMachine(t *testing.T) {
	r := lone(nil, "")
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if a := netip.MustParsePrefix(i.String()).Addr(); !r.targets.rules.OwnAddress(netip.MustParseAddr("127.0.0.1"), a) || r.targets.rules.OwnAddress(netip.MustParseAddr("192.0.2.1"), a) {
			t.Errorf("%s", a)
		}
	}
	if r.targets.rules.OwnAddress(netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")) || !r.targets.rules.OwnAddress(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1")) {
		t.Error("192.0.2.1 is nobody's here")
	}
}

// TestATokenTakesNobodysAddress: a service is registered from its own address. A delegate may
// register it from elsewhere, but not where another app has registered itself.
func TestATokenTakesNobodysAddress(t *testing.T) {
	i := ours(t)
	at := netip.MustParseAddrPort("192.0.2.5:50002")
	change := topology.InstanceChange{Source: "test", Rank: topology.Live, Put: []catalog.Instance{{ID: "1", App: shop("checkout"), Address: at, Since: 1}}}
	if _, err := i.topology.Apply(t.Context(), topology.Change{Instances: []topology.InstanceChange{change}}); err != nil {
		t.Fatal(err)
	}
	holds := func(what, port string, code int, says string) {
		t.Helper()
		body := `{"ID":"` + port + `","Name":"orders","Address":"192.0.2.5","Port":1,"Meta":{"DAPR_PORT":"` + port + `"}}`
		if r := i.do(t, "orders", "PUT", "/v1/agent/service/register", body); r.code != code || !strings.Contains(r.body, says) || strings.Contains(r.body, "checkout") {
			t.Errorf("%s: %d %s; want %d %s", what, r.code, r.body, code, says)
		}
		if d := i.topology.Resolve(shop("checkout"), shop("checkout")); d.Address != at.String() {
			t.Errorf("%s: checkout is led to %q", what, d.Address)
		}
		if d := i.topology.Resolve(shop("checkout"), shop("orders")); d.Address == at.String() {
			t.Errorf("%s: orders is led to checkout", what)
		}
		callers, _ := i.topology.Callers().Load()
		if c, ok := callers.Get(at.Addr()); !ok || c.App != shop("checkout") || c.Shared {
			t.Errorf("%s: from there asks %+v", what, c)
		}
	}
	i.server.registry.delegates = nil
	holds("from elsewhere", "50003", 403, "Permission denied: shop/orders can't register 192.0.2.5:50003 from 127.0.0.1: a service is registered from its own IP")
	i.server.registry.delegates = destination.Delegates{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Apps: []string{"shop/orders"}}}
	holds("a delegate at a sidecar's address", "50002", 403, "another app's sidecar has registered that address itself")
	holds("a delegate at another port there", "50003", 200, "")
}
