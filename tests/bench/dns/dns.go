// Package dns compares DNS servers: the one in "isthmus serve" beside Knot DNS, NSD and CoreDNS,
// each with the same 10,000 names, asked by dnsperf. The generator stands beside the server:
// compare the CPU time of a query first, and the ratios.
package dns

import (
	"context"
	"crypto/tls"
	_ "embed"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
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

// isthmus is ours, in the table.
const isthmus = "isthmus"

// New is the benchmark.
func New(flags *flag.FlagSet) harness.Command {
	rounds := flags.Int("rounds", 7, "rounds; medians are shown, and what was best")
	each := flags.Duration("each", 2*time.Second, "how long a load lasts")
	names := flags.Int("names", 10_000, "names in the zone")
	only := flags.String("only", "", "measure only servers that have one of these, with commas between them, in their name")
	by := flags.String("by", "udp,tcp,dot", "measure these transports, by dnsperf's names")
	return harness.Command{
		Short: "-rounds=1 -each=1s -names=1000",
		Roles: map[string]harness.Role{"bare": harness.As(runBare)},
		Run: func(b *harness.B) {
			s := &stage{dnsperf: harness.Must(sandbox.Binary("dnsperf")), names: *names, seconds: fmt.Sprintf("%.0f", max(each.Seconds(), 1)), queries: b.Path("queries")}
			servers := s.servers(b, *only)
			for transport := range strings.SplitSeq(*by, ",") {
				s.compare(b, servers, transport, *rounds)
			}
			s.memory(b, servers)
		},
	}
}

// server is one that runs, and its port for each transport that it has.
type server struct {
	*harness.Running
	ports map[string]int
}

// runBare is the floor of a server in Go, which has a goroutine for each connection: it sends each query back
// as an empty answer. Its arguments are its addresses for TCP and TLS, and the files of its certificate.
func runBare(b *harness.B, args []string) map[string]any {
	cert := harness.Must(tls.LoadX509KeyPair(args[2], args[3]))
	listeners := []net.Listener{harness.Must(net.Listen("tcp", args[0])), tls.NewListener(harness.Must(net.Listen("tcp", args[1])), &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"dot"}})}
	for _, l := range listeners {
		context.AfterFunc(b, func() { l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go echo(c)
			}
		}()
	}
	<-b.Done()
	return nil
}

// echo answers what has come by one write, as a server must to be fast.
func echo(c net.Conn) {
	defer c.Close()
	in := make([]byte, 0, 1<<16)
	for {
		n, err := c.Read(in[len(in):cap(in)])
		if err != nil {
			return
		}
		in = in[:len(in)+n]
		end := 0
		for len(in)-end >= 2 && len(in)-end-2 >= int(binary.BigEndian.Uint16(in[end:])) {
			in[end+4] |= 0x80 // a response
			end += 2 + int(binary.BigEndian.Uint16(in[end:]))
		}
		if _, err := c.Write(in[:end]); err != nil {
			return
		}
		in = in[:copy(in, in[end:])]
	}
}

// asked is a server by one transport, and what was measured of it.
type asked struct {
	*server
	harness.Subject
	transport string
}

// compare measures the servers by one transport. Ratios are to the first one that has it: Knot DNS, or NSD
// by TLS, which Knot has since 3.4 only.
func (s *stage) compare(b *harness.B, servers []*server, transport string, rounds int) {
	var all []*asked
	var rows []*harness.Subject
	for _, of := range servers {
		if of.ports[transport] > 0 {
			a := &asked{of, harness.Subject{Name: of.Name, Held: of.Name == isthmus}, transport}
			all, rows = append(all, a), append(rows, &a.Subject)
			a.Beside = rows[0]
		}
	}
	harness.Turns(b, rounds, all, func(a *asked) { s.measure(b, a) })
	harness.Print(fmt.Sprintf("By %s, %d names, medians of %d rounds by turns; in brackets: times that of the first", transport, s.names, rounds), rows, []harness.Column{
		{Head: "queries/s", Figure: "rate", Format: "%.0f", Quantile: .5}, {Head: "CPU µs/query", Figure: "cpu", Format: "%.2f", Quantile: .5, Times: .8},
		{Head: "at 10,000/s", Figure: "quiet", Format: "%.1f", Quantile: .5, Times: .8}, {Head: "p50 µs", Figure: "p50", Format: "%.0f", Quantile: .5},
		{Head: "p99 µs", Figure: "p99", Format: "%.0f", Quantile: .5, Times: .75}, {Head: "best CPU µs", Figure: "cpu", Format: "%.2f"},
		{Head: "best at 10,000/s", Figure: "quiet", Format: "%.1f"}, {Head: "best p99 µs", Figure: "p99", Format: "%.0f"},
		{Head: "lost", Figure: "lost", Format: "%.0f", Quantile: 1},
	})
}

// memory shows what the servers hold now, and two services that answer no DNS: with the names, and with
// none. The latter is the floor that ratios are to.
func (s *stage) memory(b *harness.B, servers []*server) {
	mute := func(name, store string) *server {
		return &server{&harness.Running{Process: s.serve(b, store, nil, nil).Process, Name: name}, nil}
	}
	floor := mute("the same, no names, no DNS", b.Path("empty.db"))
	servers = append(servers, mute("the same, no DNS", b.Path("mute.db")), floor)
	rows := make([]*harness.Subject, len(servers))
	b.Pause(5 * time.Second) // a service gives memory back once all of its parts have begun
	for i, of := range servers {
		rows[i] = &harness.Subject{Name: of.Name, Held: of.Name == isthmus}
		rows[i].MiB("rss", harness.Resident(of.PID()))
		rows[i].MiB("private", harness.Private(of.PID()))
	}
	for _, row := range rows {
		row.Beside = rows[len(rows)-1]
	}
	harness.Print(fmt.Sprintf("Memory after that, %d names; in brackets: times that of our process without names and DNS", s.names), rows, []harness.Column{
		{Head: "RSS MiB", Figure: "rss", Format: "%.1f", Times: 1.5}, {Head: "without files MiB", Figure: "private", Format: "%.1f"},
	})
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

// servers starts every server that is here, the reference first. Isthmus has listeners for one app
// without a selection, which may call every app.
func (s *stage) servers(b *harness.B, only string) (all []*server) {
	zone := fmt.Sprintf("$ORIGIN %s.\n$TTL 5\n@ SOA ns x 1 5 5 5 5\n@ NS ns\nns A 127.0.0.1\n", catalog.DefaultDomain) // RFC 1035
	var queries, records strings.Builder
	var objects []catalog.Object
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(s.names) {
		fmt.Fprintf(&queries, "%s A\n", name(i))
		fmt.Fprintf(&records, "%s. A %s\n", name(i), address(i).Addr())
		objects = append(objects, &catalog.AppInstance{Namespace: harness.Namespace, Name: harness.App(i).ID, App: harness.App(i).ID, Address: address(i)})
	}
	cert, key, err := harness.Must(sandbox.NewAuthority()).Server("ns." + catalog.DefaultDomain)
	harness.Check(err)
	for file, text := range map[string]string{b.Path("zone"): zone + records.String(), s.queries: queries.String(), b.Path("cert"): string(cert), b.Path("key"): string(key)} {
		harness.Check(os.WriteFile(file, []byte(text), 0o644))
	}
	for _, path := range []string{b.Path("isthmus.db"), b.Path("mute.db")} {
		store := harness.Must(embedded.Open(path))
		harness.Write(b, store, objects)
		harness.Check(store.Close())
	}

	for _, peer := range []harness.Server{
		{Name: "Knot DNS", Program: "knotd", Args: []string{"-c", "CONFIG"}, Config: knotConfig},
		{Name: "NSD", Program: "nsd", Args: []string{"-d", "-c", "CONFIG"}, Config: nsdConfig},
		{Name: "CoreDNS, two sockets", Program: "coredns", Args: []string{"-conf", "CONFIG"}, Config: corednsConfig},
		{Name: "a bare server in Go", Program: harness.Must(os.Executable()), Args: harness.Arguments("bare", []string{"127.0.0.1:PORT", "127.0.0.1:TLS", "CERT", "KEY"})},
	} {
		encrypted := harness.Must(sandbox.FreePort())
		peer.Fill = []string{"ZONE", b.Path("zone"), "CORES", fmt.Sprint(runtime.NumCPU()), "CERT", b.Path("cert"), "KEY", b.Path("key"), "TLS", fmt.Sprint(encrypted)}
		ports, answers := []string{"udp", "tcp", "dot"}, s.answers
		switch peer.Config {
		case knotConfig:
			ports = ports[:2]
		case "":
			ports, answers = ports[1:], func(r *harness.Running) { harness.Check(harness.Must(net.Dial("tcp", r.Addr)).Close()) }
		}
		for _, r := range b.Servers(only, []harness.Server{peer}, answers) {
			all = append(all, &server{r, map[string]int{}})
			for _, transport := range ports {
				all[len(all)-1].ports[transport] = map[bool]int{true: encrypted, false: r.Port}[transport == "dot"]
			}
		}
	}
	if harness.Wanted(isthmus, only) {
		plain, tls := harness.Must(sandbox.FreePort()), harness.Must(sandbox.FreePort())
		listen := func(port int, tls bool) map[string]any {
			return map[string]any{"address": fmt.Sprintf("127.0.0.1:%d", port), "as": harness.Namespace + "/asker", "tls": tls}
		}
		service := s.serve(b, b.Path("isthmus.db"), map[string]any{"dns": []any{listen(plain, false), listen(tls, true)}},
			map[string]any{"dns": map[string]any{"tls": map[string]any{"cert": b.Path("cert"), "key": b.Path("key")}}})
		ours := &harness.Running{Process: service.Process, Name: isthmus, Port: plain, Addr: fmt.Sprintf("127.0.0.1:%d", plain)}
		ours.Await(b, s.answers)
		all = append(all, &server{ours, map[string]int{"udp": plain, "tcp": plain, "dot": tls}})
	}
	return all
}

// serve starts a service with a store.
func (s *stage) serve(b *harness.B, store string, listen, settings map[string]any) *sandbox.Service {
	return harness.Must(b.Sandbox().Service(b, sandbox.ServiceOptions{
		Cluster: "west", Store: map[string]any{"embedded": map[string]any{"path": store}}, Listen: listen, Settings: settings}))
}

// answers asks a server for the last name's address.
func (s *stage) answers(of *harness.Running) {
	client := dns.Client{Timeout: time.Second}
	m, _, err := client.Exchange(new(dns.Msg).SetQuestion(name(s.names-1)+".", dns.TypeA), of.Addr)
	harness.Check(err)
	harness.Assert(len(m.Answer) == 1 && strings.HasSuffix(m.Answer[0].String(), "\t"+address(s.names-1).Addr().String()), "not the address of %s: %s", name(s.names-1), m)
}

// measure does one round.
func (s *stage) measure(b *harness.B, of *asked) {
	flat, took := s.load(b, of)
	of.Add("rate", flat.rate)
	of.Add("cpu", float64(took)/1e3/flat.completed)
	quiet, took := s.load(b, of, "-Q", "10000", "-T", "2", "-v")
	of.Add("quiet", float64(took)/1e3/quiet.completed)
	of.Add("p50", 1e6*harness.Quantile(quiet.latencies, .5))
	of.Add("p99", 1e6*harness.Quantile(quiet.latencies, .99))
	of.Add("lost", flat.lost+quiet.lost)
}

// load has dnsperf ask a server from 16 sockets, with 200 queries pending, and returns what it says and
// the server's CPU time.
func (s *stage) load(b *harness.B, of *asked, more ...string) (said *dnsperf, took time.Duration) {
	harness.Check(of.Unexpected())
	args := append([]string{"-s", "127.0.0.1", "-m", of.transport, "-p", strconv.Itoa(of.ports[of.transport]), "-d", s.queries, "-l", s.seconds, "-c", "16", "-q", "200"}, more...)
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
