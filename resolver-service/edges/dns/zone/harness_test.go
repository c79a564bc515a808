package zone

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var west = topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true, Network: "net-1"}

// world is a topology at work, and a zone over it.
type world struct {
	*Zone
	top   *topology.Topology
	hosts live.Value[hosts.Addresses]
	t     testing.TB
}

func newWorld(t testing.TB, cluster topology.Config, change ...func(*Config)) *world {
	w := &world{top: topology.New(cluster, slog.New(slog.DiscardHandler)), t: t}
	cfg := Config{
		Cluster: cluster.Cluster, Domain: cluster.Domain, Kubernetes: "cluster.local", NSID: "west-1", Version: "isthmus test",
		Hosts: &w.hosts, CookieSecret: [16]byte{1, 2, 3},
	}
	for _, c := range change {
		c(&cfg)
	}
	w.Zone = New(cfg, w.top, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{w.top.Run, w.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { stop(); running.Wait() })
	return w
}

// apply makes changes one after the other.
func (w *world) apply(changes ...topology.Change) {
	w.t.Helper()
	for _, c := range changes {
		if _, err := w.top.Apply(context.Background(), c); err != nil {
			w.t.Fatal(err)
		}
	}
}

func app(s string) catalog.App {
	a, err := catalog.ParseApp(s)
	if err != nil {
		panic(err)
	}
	return a
}

func full(put ...catalog.Object) topology.Change {
	return topology.Change{Objects: &topology.ObjectChange{Full: true, Put: put}}
}

func put(objects ...catalog.Object) topology.Change {
	return topology.Change{Objects: &topology.ObjectChange{Put: objects}}
}

// runs are the instances of an app, all of them from a source of their own.
func runs(a string, addresses ...string) topology.Change {
	c := topology.InstanceChange{Source: a, Full: true}
	for _, address := range addresses {
		c.Put = append(c.Put, catalog.Instance{ID: address, App: app(a), Address: netip.MustParseAddrPort(address)})
	}
	return topology.Change{Instances: []topology.InstanceChange{c}}
}

func selects(caller string, endpoints ...catalog.Endpoint) *catalog.AppEndpoints {
	return &catalog.AppEndpoints{App: app(caller), Endpoints: endpoints}
}

func calls(callee string, routes ...catalog.RouteSpec) catalog.Endpoint {
	return catalog.Endpoint{App: app(callee), Routes: routes}
}

func via(cluster string, priority, weight uint32) catalog.RouteSpec {
	return catalog.RouteSpec{Cluster: cluster, Priority: priority, Weight: weight}
}

func reaches(name string, gateways ...string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Gateways: gateways}
}

// forApp adds gateways that lead to one app alone.
func forApp(c *catalog.Cluster, a string, addresses ...string) *catalog.Cluster {
	for _, address := range addresses {
		c.AppGateways = append(c.AppGateways, catalog.AppGateway{App: app(a), Address: address})
	}
	return c
}

// says is a peer's word: the apps that it exports to everybody, and how many are ready.
func says(cluster string, exports ...topology.PeerExport) topology.Change {
	return topology.Change{Peers: []topology.PeerChange{{Cluster: cluster, Put: exports, Lease: topology.Fresh}}}
}

func has(a string, ready uint32) topology.PeerExport {
	return topology.PeerExport{App: app(a), Allow: []catalog.Allow{{}}, Ready: ready}
}

func lapses(cluster string) topology.Change {
	return topology.Change{Peers: []topology.PeerChange{{Cluster: cluster, Lease: topology.Expired}}}
}

// asking is a query of a test.
type asking struct {
	from  string // an address
	as    string // whom the listener is bound to
	name  string
	typ   string
	edns  bool
	over  transport.Protocol
	shape func(*dns.Msg) // changes the query
}

func (a *asking) message() *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(a.name, dns.StringToType[a.typ])
	if a.edns {
		m.SetEdns0(1232, false)
	}
	if a.shape != nil {
		a.shape(m)
	}
	return m
}

// ask answers a query, as a transport would have it answered, and holds the response to
// what every response must be.
func (w *world) ask(a asking) *dns.Msg {
	w.t.Helper()
	m := a.message()
	packet, err := m.Pack()
	if err != nil {
		w.t.Fatal(err)
	}
	q := query(a, packet)
	out := make([]byte, 0, 65535)
	response, later := w.Answer(q, out)
	if later {
		response = w.Wait(context.Background(), q, out)
	}
	got := new(dns.Msg)
	if err := got.Unpack(response); err != nil {
		w.t.Fatalf("%s %s: the response can't be read: %v\n%x", a.name, a.typ, err, response)
	}
	if got.Id != m.Id || !got.Response || len(got.Question) != 1 || got.Question[0] != m.Question[0] {
		w.t.Fatalf("%s %s: the response is to another query: %v", a.name, a.typ, got)
	}
	if (m.IsEdns0() != nil) != (got.IsEdns0() != nil) {
		w.t.Fatalf("%s %s: EDNS in the query is not as in the response: %v", a.name, a.typ, got)
	}
	return got
}

func query(a asking, packet []byte) *transport.Query {
	q := &transport.Query{Packet: packet, Protocol: a.over, To: netip.MustParseAddr("192.0.2.53")}
	if a.from == "" {
		a.from = "10.9.9.9"
	}
	q.From = netip.AddrPortFrom(netip.MustParseAddr(a.from), 5353)
	if a.as != "" {
		q.As = app(a.as)
	}
	return q
}

// show is a response as zone files have it: first the code and the flags, then a line for
// each record; those of other sections than the answer say so, and an extended error
// follows. The serial of SOA records is written as "serial".
func show(m *dns.Msg) string {
	head := dns.RcodeToString[m.Rcode]
	for _, flag := range []struct {
		set  bool
		name string
	}{{m.Authoritative, "aa"}, {m.Truncated, "tc"}, {m.RecursionAvailable, "ra"}} {
		if flag.set {
			head += " " + flag.name
		}
	}
	lines := []string{head}
	add := func(section string, records []dns.RR) {
		from := len(lines)
		for _, rr := range records {
			if rr.Header().Rrtype == dns.TypeOPT {
				continue
			}
			if soa, ok := rr.(*dns.SOA); ok {
				text := fmt.Sprint(soa.Serial)
				lines = append(lines, section+strings.Replace(plainText(rr), " "+text+" ", " serial ", 1))
				continue
			}
			lines = append(lines, section+plainText(rr))
		}
		slices.Sort(lines[from:])
	}
	add("", m.Answer)
	add("authority: ", m.Ns)
	add("additional: ", m.Extra)
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				lines = append(lines, fmt.Sprintf("error: %d %s: %s", e.InfoCode, dns.ExtendedErrorCodeToString[e.InfoCode], e.ExtraText))
			}
		}
	}
	return strings.Join(lines, "\n")
}

func plainText(rr dns.RR) string { return strings.Join(strings.Fields(rr.String()), " ") }

// lines is a text of a table without its indent.
func lines(s string) string {
	var all []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return strings.Join(all, "\n")
}

// row is a query and the response to it, in words. Ask is "name type", and + for EDNS.
type row struct {
	ask  string
	want string
}

// check asks what rows say for a caller, who is an app or an address.
func (w *world) check(who string, rows []row) {
	w.t.Helper()
	for _, r := range rows {
		f := strings.Fields(r.ask)
		a := asking{name: f[0], typ: f[1], edns: len(f) > 2}
		if strings.Contains(who, "/") {
			a.as = who
		} else {
			a.from = who
		}
		if got := show(w.ask(a)); got != lines(r.want) {
			w.t.Errorf("%s asks %s: got\n%s\nwant\n%s", who, r.ask, got, lines(r.want))
		}
	}
}
