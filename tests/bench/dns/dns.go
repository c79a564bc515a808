// Package dns compares DNS servers: the one in "isthmus serve" beside Knot DNS, NSD and CoreDNS,
// each with the same 10,000 names, asked by dnsperf. The generator stands beside the server:
// compare the CPU time of a query first, and the ratios.
package dns

import (
	_ "embed"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// reference is the server that ratios are to.
const reference = "Knot DNS"

// New is the benchmark.
func New(flags *flag.FlagSet) harness.Command {
	rounds := flags.Int("rounds", 7, "rounds; medians are shown, and what was best")
	each := flags.Duration("each", 2*time.Second, "how long a load lasts")
	names := flags.Int("names", 10_000, "names in the zone")
	only := flags.String("only", "", "measure only servers that have this in their name")
	return harness.Command{
		Short: "-rounds=1 -each=1s -names=1000",
		Run: func(b *harness.B) {
			s := &stage{dnsperf: harness.Must(sandbox.Binary("dnsperf")), names: *names, seconds: fmt.Sprintf("%.0f", max(each.Seconds(), 1)), queries: b.Path("queries")}
			servers := s.servers(b, *only)
			harness.Turns(b, *rounds, servers, func(of *server) { s.measure(b, of) })
			show(servers, *names, *rounds)
		},
	}
}

func show(servers []*server, names, rounds int) {
	var all []*harness.Subject
	for _, s := range servers {
		if servers[0].Subject.Name == reference {
			s.Beside = &servers[0].Subject
		}
		all = append(all, &s.Subject)
	}
	title := fmt.Sprintf("%d names, medians of %d rounds by turns; in brackets: times that of %s", names, rounds, reference)
	harness.Print(title, all, []harness.Column{
		{Head: "queries/s", Figure: "rate", Format: "%.0f", Quantile: .5}, {Head: "CPU µs/query", Figure: "cpu", Format: "%.2f", Quantile: .5, Times: 1},
		{Head: "at 10,000/s", Figure: "quiet", Format: "%.1f", Quantile: .5, Times: 1}, {Head: "p50 µs", Figure: "p50", Format: "%.0f", Quantile: .5},
		{Head: "p99 µs", Figure: "p99", Format: "%.0f", Quantile: .5, Times: 1}, {Head: "best CPU µs", Figure: "cpu", Format: "%.2f"},
		{Head: "best at 10,000/s", Figure: "quiet", Format: "%.1f"}, {Head: "best p99 µs", Figure: "p99", Format: "%.0f"},
		{Head: "RSS MiB", Figure: "rss", Format: "%.1f", Quantile: 1}, {Head: "lost", Figure: "lost", Format: "%.0f", Quantile: 1},
	})
}

// server is one that runs, and what was measured of it.
type server struct {
	*harness.Running
	harness.Subject
}

// stage has the zone and the queries in files, and starts the servers.
type stage struct {
	dnsperf, queries, seconds string
	names                     int
}

// address is where the only instance of the i-th app is.
func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), harness.Port)
}

// name is the i-th app's, as everybody asks for it.
func name(i int) string {
	return harness.App(i).ID + "." + harness.Namespace + "." + catalog.DefaultDomain
}

// servers starts every server that is here, the reference first. Isthmus has a listener for one app
// without a selection, which may call every app.
func (s *stage) servers(b *harness.B, only string) (all []*server) {
	store := harness.Must(embedded.Open(b.Path("isthmus.db")))
	zone := fmt.Sprintf("$ORIGIN %s.\n$TTL 5\n@ SOA ns x 1 5 5 5 5\n@ NS ns\nns A 127.0.0.1\n", catalog.DefaultDomain) // RFC 1035
	var queries, records strings.Builder
	var objects []catalog.Object
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(s.names) {
		fmt.Fprintf(&queries, "%s A\n", name(i))
		fmt.Fprintf(&records, "%s. A %s\n", name(i), address(i).Addr())
		objects = append(objects, &catalog.AppInstance{Namespace: harness.Namespace, Name: harness.App(i).ID, App: harness.App(i).ID, Address: address(i)})
	}
	harness.Check(os.WriteFile(b.Path("zone"), []byte(zone+records.String()), 0o644))
	harness.Check(os.WriteFile(s.queries, []byte(queries.String()), 0o644))
	harness.Write(b, store, objects)
	harness.Check(store.Close())

	fill := []string{"ZONE", b.Path("zone"), "CORES", fmt.Sprint(runtime.NumCPU())}
	running := b.Servers(only, []harness.Server{
		{Name: reference, Program: "knotd", Args: []string{"-c", "CONFIG"}, Config: knotConfig, Fill: fill},
		{Name: "NSD", Program: "nsd", Args: []string{"-d", "-c", "CONFIG"}, Config: nsdConfig, Fill: fill},
		{Name: "CoreDNS, two sockets", Program: "coredns", Args: []string{"-conf", "CONFIG"}, Config: corednsConfig, Fill: fill},
	}, s.answers)
	if harness.Wanted("isthmus", only) {
		port := harness.Must(sandbox.FreePort())
		at := fmt.Sprintf("127.0.0.1:%d", port)
		service := harness.Must(b.Sandbox().Service(b, sandbox.ServiceOptions{
			Cluster: "west", Store: map[string]any{"embedded": map[string]any{"path": b.Path("isthmus.db")}},
			Listen: map[string]any{"dns": []any{map[string]any{"address": at, "as": harness.Namespace + "/asker"}}},
		}))
		ours := &harness.Running{Process: service.Process, Name: "isthmus", Port: port, Addr: at}
		ours.Await(b, s.answers)
		running = append(running, ours)
	}
	for _, r := range running {
		all = append(all, &server{r, harness.Subject{Name: r.Name, Held: r.Name == "isthmus"}})
	}
	return all
}

// answers asks a server for the last name's address.
func (s *stage) answers(of *harness.Running) {
	client := dns.Client{Timeout: time.Second}
	m, _, err := client.Exchange(new(dns.Msg).SetQuestion(name(s.names-1)+".", dns.TypeA), of.Addr)
	harness.Check(err)
	harness.Assert(len(m.Answer) == 1 && strings.HasSuffix(m.Answer[0].String(), "\t"+address(s.names-1).Addr().String()), "not the address of %s: %s", name(s.names-1), m)
}

// measure does one round.
func (s *stage) measure(b *harness.B, of *server) {
	flat, took := s.load(b, of)
	of.Add("rate", flat.rate)
	of.Add("cpu", float64(took)/1e3/flat.completed)
	quiet, took := s.load(b, of, "-Q", "10000", "-T", "2", "-v")
	of.Add("quiet", float64(took)/1e3/quiet.completed)
	of.Add("p50", 1e6*harness.Quantile(quiet.latencies, .5))
	of.Add("p99", 1e6*harness.Quantile(quiet.latencies, .99))
	of.Add("lost", flat.lost+quiet.lost)
	of.MiB("rss", harness.Resident(of.PID()))
}

// load has dnsperf ask a server from 16 sockets, with 200 queries pending, and returns what it says and
// the server's CPU time.
func (s *stage) load(b *harness.B, of *server, more ...string) (said *dnsperf, took time.Duration) {
	harness.Check(of.Unexpected())
	args := append([]string{"-s", "127.0.0.1", "-p", strconv.Itoa(of.Port), "-d", s.queries, "-l", s.seconds, "-c", "16", "-q", "200"}, more...)
	var out []byte
	took = harness.Spent(of.PID(), func() { out = harness.Must(exec.CommandContext(b, s.dnsperf, args...).Output()) })
	return harness.Must(readDnsperf(string(out))), took
}

// dnsperf is what dnsperf says of a load.
type dnsperf struct {
	completed, lost float64
	rate            float64   // a second
	latencies       []float64 // s; with -v
}

var (
	answered = regexp.MustCompile(`(?m)^> NOERROR \S+ \S+ ([0-9.]+)$`)
	codes    = regexp.MustCompile(`(?m)^\s+Response codes:\s+NOERROR \S+ \(100.00%\)$`)
)

// readDnsperf reads dnsperf's output. Anything but addresses for answers is an error: it would be
// compared with what costs more.
func readDnsperf(out string) (*dnsperf, error) {
	d := &dnsperf{}
	for _, m := range answered.FindAllStringSubmatch(out, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64) // it is a number
		d.latencies = append(d.latencies, seconds)
	}
	for name, into := range map[string]*float64{"Queries completed": &d.completed, "Queries lost": &d.lost, "Queries per second": &d.rate} {
		_, after, _ := strings.Cut(out, name+":")
		if _, err := fmt.Sscan(after, into); err != nil {
			return nil, fmt.Errorf("read dnsperf's %s: %w", name, err)
		}
	}
	if d.completed == 0 || !codes.MatchString(out) {
		return nil, fmt.Errorf("not every answer is NOERROR: %.2000s", out)
	}
	return d, nil
}

// The servers' configurations.
var (
	//go:embed knot.conf
	knotConfig string
	//go:embed nsd.conf
	nsdConfig string
	//go:embed Corefile
	corednsConfig string
)
