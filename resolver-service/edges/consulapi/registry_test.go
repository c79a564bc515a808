package consulapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// lone is a registry that tells nobody but share.
func lone(share edge.Sharer, dir string) *registry {
	r := newRegistry(&counting{}, share, newStore(dir, slog.New(slog.DiscardHandler)), newNode("n", "127.0.0.1", "west"), DefaultPortMeta, new(atomic.Uint64), slog.New(slog.DiscardHandler))
	r.delegates = anybody
	return r
}

// TestAServiceDoesNotGatherChecks over registrations, each of which has others; a check that is
// in both keeps its status.
func TestAServiceDoesNotGatherChecks(t *testing.T) {
	r := lone(nil, "")
	for round := range 3 {
		d := &api.AgentServiceRegistration{ID: "orders", Name: "orders", Port: 1, Check: &api.AgentServiceCheck{CheckID: "stays", TTL: "1m"}}
		for n := range 30 {
			d.Checks = append(d.Checks, &api.AgentServiceCheck{CheckID: fmt.Sprint(round, "-", n), TTL: "1m"})
		}
		if err := r.register(t.Context(), shop("orders"), d, netip.MustParseAddr("10.0.0.1")); err != nil {
			t.Fatal(err)
		}
		own := r.own(shop("orders"))
		if len(own.checks) != 31 || len(own.services["orders"].checks) != 31 || round > 0 && own.checks["stays"].shown.Status != passing {
			t.Errorf("round %d: %d checks, %+v", round, len(own.checks), own.checks["stays"].shown)
		}
		if err := r.update(t.Context(), shop("orders"), "stays", passing, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// TestACheckAsksNobodyElse: above all not this machine's own ports, nor a cloud's metadata,
// under an address that the client has made up.
func TestACheckAsksNobodyElse(t *testing.T) {
	r := lone(nil, "")
	r.targets.rules = onHost("10.0.0.1")
	const full, discreet = "full", "discreet"
	for _, c := range []struct {
		host, address, sender string
		may                   string
	}{
		{"10.0.0.7", "10.0.0.7", "10.0.0.7", full},
		{"10.0.0.8", "10.0.0.8", "10.0.0.7", discreet},
		{"10.0.0.7", "10.0.0.8", "10.0.0.7", full},
		{"10.0.0.9", "10.0.0.8", "10.0.0.7", ""},
		{"10.0.0.1", "10.0.0.1", "127.0.0.1", full},
		{"10.0.0.1", "", "127.0.0.1", full},
		{"10.0.0.1", "10.0.0.1", "10.0.0.7", discreet},
		{"10.0.0.8", "10.0.0.8", "127.0.0.1", discreet},
		{"127.0.0.1", "", "127.0.0.1", full},
		{"localhost", "10.0.0.7", "127.0.0.1", full},
		{"127.0.0.1", "127.0.0.1", "10.0.0.7", ""},
		{"127.0.0.1", "127.0.0.1", "10.0.0.1", ""},
		{"::1", "::1", "10.0.0.7", ""},
		{"::ffff:127.0.0.1", "::ffff:127.0.0.1", "10.0.0.7", ""},
		{"localhost", "localhost", "10.0.0.7", ""},
		{"localhost", "127.0.0.1", "10.0.0.7", ""},
		{"host.example", "host.example", "10.0.0.7", ""},
		{"169.254.169.254", "169.254.169.254", "10.0.0.7", ""},
		{"fe80::1", "fe80::1", "10.0.0.7", ""},
		{"0.0.0.0", "0.0.0.0", "10.0.0.7", ""},
		{"169.254.3.4", "", "169.254.3.4", ""},
		{"224.0.0.1", "224.0.0.1", "10.0.0.7", ""},
		{"255.255.255.255", "255.255.255.255", "10.0.0.7", ""},
	} {
		at, sender := c.host, netip.MustParseAddr(c.sender)
		if strings.Contains(at, ":") {
			at = "[" + at + "]"
		}
		for _, f := range []*api.AgentServiceCheck{{HTTP: "http://" + at + ":80/"}, {HTTP: "http://" + at + ":80/", Method: "POST", Body: "x"}, {TCP: at + ":80"}, {GRPC: at + ":80/x"}} {
			spec := specOf(t, f)
			got, err := full, r.targets.check(shop("orders"), spec, c.address, sender)
			if r.targets.subject(shop("orders"), spec, sender).Unverified {
				got = discreet
			}
			if err != nil {
				got = ""
			}
			want := c.may
			if want == discreet && f.Method == "POST" {
				want = ""
			}
			if got != want {
				t.Errorf("%s %s asks %s for a service at %q of %s: %q %v, want %q", spec.kind, f.Method, c.host, c.address, c.sender, got, err, want)
			}
		}
	}
}

// specOf is a check that asks once a second.
func specOf(t *testing.T, c *api.AgentServiceCheck) *checkSpec {
	t.Helper()
	c.Interval = "1s"
	spec, err := readCheck(c)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestARenewalIsNotOverruled by the timer that fired while it was taken in.
func TestARenewalIsNotOverruled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lone(nil, "")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.run(ctx) }()
		synctest.Wait()
		d := &api.AgentServiceRegistration{ID: "x", Name: "orders", Port: 1, Checks: api.AgentServiceChecks{
			{CheckID: "c", TTL: "10s", DeregisterCriticalServiceAfter: "1m"},
		}}
		if err := r.register(ctx, shop("orders"), d, netip.MustParseAddr("10.0.0.1")); err != nil {
			t.Fatal(err)
		}
		own := r.own(shop("orders"))
		set := func(status string) {
			if err := r.update(ctx, own.app, "c", status, ""); err != nil {
				t.Fatal(err)
			}
		}
		set(passing)
		own.checks["c"].expire()
		if all, _ := own.roster.Load(); all.services[0].status() != passing {
			t.Errorf("%s, though it was renewed", all.services[0].status())
		}
		set(critical)
		own.checks["c"].reap()
		if len(own.services) != 1 {
			t.Error("deregistered, though it was critical for a moment only")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// elsewhere gives orders an instance that is not registered by the API.
func elsewhere(t *testing.T, i *isthmus) {
	t.Helper()
	change := topology.InstanceChange{Source: "test", Full: true, Put: []catalog.Instance{{ID: "1", App: shop("orders"), Address: netip.MustParseAddrPort("10.0.0.9:50002")}}}
	if _, err := i.topology.Apply(t.Context(), topology.Change{Instances: []topology.InstanceChange{change}}); err != nil {
		t.Fatal(err)
	}
}

// TestTheFirstRegistrationIsNews to who waits, also one that changes no view.
func TestTheFirstRegistrationIsNews(t *testing.T) {
	i := ours(t)
	elsewhere(t, i)
	r := i.do(t, "checkout", "GET", "/v1/health/service/orders", "")
	told := make(chan string)
	go func() {
		told <- i.do(t, "checkout", "GET", "/v1/health/service/orders?wait=50s&index="+r.header.Get("X-Consul-Index"), "").body
	}()
	for end := time.Now().Add(time.Minute); i.server.metrics.blocked.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not wait")
		}
	}
	body := `{"Name":"orders","Port":7,"Check":{"TTL":"1h","Status":"critical"}}`
	if r := i.do(t, "orders", "PUT", "/v1/agent/service/register", body); r.code != 200 {
		t.Fatal(r)
	}
	if got := <-told; !strings.Contains(got, `"critical"`) || !strings.Contains(got, "10.0.0.9") {
		t.Errorf("after the wait: %s", got)
	}
}

// TestAnAnswerStands while nothing changes, of apps too that register elsewhere; and no
// client has long names remembered.
func TestAnAnswerStands(t *testing.T) {
	i := ours(t)
	elsewhere(t, i)
	c := i.server.callers[shop("checkout")]
	if a, b := i.server.service(c, "orders", ""), i.server.service(c, "orders", ""); len(a.entries) != 1 || a != b {
		t.Errorf("made twice; %d entries", len(a.entries))
	}
	if r := i.do(t, "checkout", "GET", "/v1/health/service/"+strings.Repeat("x", 100_000), ""); r.code != 200 || r.body != "[]" {
		t.Errorf("%d %s", r.code, r.body)
	}
	for key := range c.records {
		if len(key) > 2*longestID {
			t.Errorf("a key of %d bytes is kept", len(key))
		}
	}
}

// TestWhatComesBackStays: another replica took a service, but it registered here again
// before this one looked. And what was taken before Run is let go of.
func TestWhatComesBackStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &others{}
		r := lone(o, "")
		ctx, cancel := context.WithCancel(t.Context())
		register := func(id string, port int) func() {
			if err := r.register(ctx, shop("orders"), &api.AgentServiceRegistration{ID: id, Name: "orders", Port: port}, netip.MustParseAddr("10.0.0.1")); err != nil {
				t.Fatal(err)
			}
			return o.taken
		}
		register("gone", 1)()
		taken := register("back", 2)
		taken()
		register("back", 3)
		synctest.Wait()
		done := make(chan error)
		go func() { done <- r.run(ctx) }()
		synctest.Wait()
		if all, _ := r.own(shop("orders")).roster.Load(); len(all.services) != 1 || all.services[0].service.ID != "back" {
			t.Errorf("%d services are left", len(all.services))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWithoutATokenNothingIsTakenOver: nobody could deregister it.
func TestWithoutATokenNothingIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	r := lone(nil, dir)
	for _, id := range []string{"orders", "retired"} {
		if err := r.register(t.Context(), shop(id), &api.AgentServiceRegistration{ID: id, Name: id, Port: 1}, netip.MustParseAddr("10.0.0.1")); err != nil {
			t.Fatal(err)
		}
	}
	i := start(t, dir, Settings{}, selection("checkout"))
	if n := i.server.Instances(); n != 1 || i.server.registry.known(shop("orders")) == nil {
		t.Errorf("%d services are taken over", n)
	}
	if files, _ := os.ReadDir(dir); len(files) != 2 {
		t.Errorf("%d files are left", len(files))
	}
}

// TestRequestsAreCounted, whatever is asked.
func TestRequestsAreCounted(t *testing.T) {
	i := ours(t)
	if _, err := newMetrics(prometheus.NewPedanticRegistry(), i.server); err != nil {
		t.Fatal(err)
	}
	i.do(t, "orders", "PUT", "/v1/agent/service/register", `{"Name":"orders","Port":7}`)
	i.do(t, "orders", "PUT", "/v1/agent/service/register", `{"Name":"checkout","Port":7}`)
	i.do(t, "stranger", "GET", "/v1/health/service/orders", "")
	i.do(t, "checkout", "GET", "/v1/health/service/orders", "")
	for _, path := range []string{"/", "/v1/kv/secret", "/v1/" + strings.Repeat("x", 1000), "/v1/agent/%01"} {
		i.do(t, "checkout", "GET", path, "")
	}
	m := i.server.metrics
	for labels, want := range map[[2]string]float64{
		{"agent", "2xx"}: 1, {"agent", "4xx"}: 2, {"health", "2xx"}: 1, {"health", "4xx"}: 1, {"other", "4xx"}: 3,
	} {
		if got := testutil.ToFloat64(m.requests.WithLabelValues(labels[0], labels[1])); got != want {
			t.Errorf("%v: %v, want %v", labels, got, want)
		}
	}
	if n := testutil.CollectAndCount(m.requests); n != 5 {
		t.Errorf("%d series", n)
	}
	for _, reason := range []string{unknownToken, noPermission} {
		if got := testutil.ToFloat64(m.denied.WithLabelValues(reason)); got != 1 {
			t.Errorf("denied by %s: %v", reason, got)
		}
	}
}

// TestTheCertificateIsReadAtTheStart: else only handshakes would fail, and nobody be told.
func TestTheCertificateIsReadAtTheStart(t *testing.T) {
	i := ours(t)
	cfg := i.server.cfg
	cfg.TLS = &TLS{Cert: "/nowhere/tls.crt", Key: "/nowhere/tls.key"}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "consul.tls: ") || !strings.Contains(err.Error(), "/nowhere/tls.crt") {
		t.Error(err)
	}
}

// TestWhatIsKeptTakesNoMoreRoom than it took before the restart: who registers it again
// must not be told that it does not fit.
func TestWhatIsKeptTakesNoMoreRoom(t *testing.T) {
	place := t.TempDir()
	before := lone(nil, place)
	d := &api.AgentServiceRegistration{ID: "a", Name: "orders", Port: 1, Check: &api.AgentServiceCheck{TTL: "1h", Notes: "one"}}
	for _, id := range []string{"", "named"} {
		d.Checks = append(d.Checks, &api.AgentServiceCheck{CheckID: id, TTL: "1h", Notes: id})
	}
	if err := before.register(t.Context(), shop("orders"), d, netip.MustParseAddr("10.0.0.1")); err != nil {
		t.Fatal(err)
	}
	after := lone(nil, place)
	if n := after.restore(after.store.load(after.log)); n != 1 {
		t.Fatalf("%d services are taken over", n)
	}
	is, was := after.own(shop("orders")), before.own(shop("orders"))
	if len(is.checks) != 3 || is.services["a"].size != was.services["a"].size || was.services["a"].size == 0 {
		t.Errorf("%d checks and %d bytes, want 3 and %d", len(is.checks), is.services["a"].size, was.services["a"].size)
	}
}

// TestAFormerVersionsFileIsTakenOver: durations are texts there too, and a check that had been
// registered by itself goes.
func TestAFormerVersionsFileIsTakenOver(t *testing.T) {
	s, err := parseSaved([]byte(`{"version":1,"namespace":"shop","app":"orders","sender":"10.0.0.1","since":7,"service":{"ID":"a","Name":"orders","Tags":null,"Address":"10.0.0.1",
		"TaggedAddresses":null,"Meta":{"DAPR_PORT":"50002"},"Port":8080,"SocketPath":"","Check":null,"Checks":[{"CheckID":"","Name":"","Status":"","Notes":"","TTL":"1h0m0s","Interval":"0s",
		"Timeout":"0s","DeregisterCriticalServiceAfter":"0s","SuccessBeforePassing":0,"OutputMaxSize":0,"HTTP":"","Header":null,"DisableRedirects":false,"TCP":"","GRPC":""}],"Weights":null,"EnableTagOverride":false},
		"checks":[{"id":"service:a","fields":{"TTL":"1h0m0s"},"shown":{"Node":"isthmus-west","CheckID":"service:a","Status":"passing","Output":"fine","Type":"ttl","Interval":"","Definition":{}}},
		{"id":"more","fields":{"TTL":"1h0m0s"},"shown":{"Status":"critical"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r := lone(nil, "")
	r.restore([]*saved{s})
	got := r.rosterOf(shop("orders")).services[0]
	if len(got.checks) != 2 || got.status() != passing || got.checks[1].Output != "fine" || got.address.String() != "10.0.0.1:50002" || got.since.at != 7 {
		t.Errorf("%+v %+v", got, got.checks)
	}
}
