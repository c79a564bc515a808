// Package gateway compares what it costs to pass connections on: the gateway of Isthmus beside
// HAProxy, nginx and sniproxy, all in one run.
//
// It measures CPU time of the proxies, not rates: the load generator and the apps behind run on the
// same machine and would blur rates. Rounds are interleaved and the table shows medians.
package gateway

import (
	_ "embed"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// The names that the proxies route by.
const (
	echoHost = "echo.bench.east.isthmus.internal" // TLS, echoes blocks of 1 KiB
	bulkHost = "bulk.bench.east.isthmus.internal" // sends as many bytes as it is told to
)

// ours is our gateway, in the table.
const ours = "isthmus"

// load is how much of everything one round does.
type load struct{ rounds, connections, requests, bytes, idle int }

// New is the benchmark.
func New(flags *flag.FlagSet) harness.Command {
	var l load
	only := flags.String("only", "", "measure only what has one of these, with commas between them, in its name")
	flags.IntVar(&l.rounds, "rounds", 3, "rounds; medians are shown")
	flags.IntVar(&l.connections, "connections", 1000, "new TLS connections in a round, and as many without an exchange; 0 leaves a part out")
	flags.IntVar(&l.requests, "requests", 15000, "requests of 1 KiB in a round")
	flags.IntVar(&l.bytes, "bytes", 1<<30, "bytes in bulk in a round")
	flags.IntVar(&l.idle, "idle", 20000, "idle connections, as far as the limit of open files goes")
	return harness.Command{
		Short: "-rounds=1 -connections=50 -requests=200 -bytes=10000000 -idle=200",
		Roles: map[string]harness.Role{"apps": runApps, "gateway": harness.As(runGateway), "tunnel": harness.As(runTunnel)},
		Run:   func(b *harness.B) { compare(b, l, *only) },
	}
}

// candidate is one proxy, running, and what was measured of it.
type candidate struct {
	*harness.Running
	*harness.Subject
}

// compare starts everything, measures it and prints the table. Idle connections come last, with new
// processes: what those before have left in the memory of a Go program would be used again, and cost
// nothing.
func compare(b *harness.B, l load, only string) {
	self := b.Path("bench") // where every user may execute it
	harness.Check(exec.CommandContext(b, "cp", harness.Must(os.Executable()), self).Run())
	certificates := harness.Certificates(b.Path("services"))
	harness.Check(os.Mkdir(string(certificates), 0o700))
	certificates.Issue(identity.ServiceApp("", "west"), identity.ServiceApp("", "east"))
	proxies := proxies(self, certificates, harness.Ask[apps](b.Child("apps", nil), "Apps", nil))
	subjects := map[string]*harness.Subject{}
	var all []*harness.Subject
	b.Scope(func(b *harness.B) {
		candidates := start(b, proxies, only, subjects)
		for _, c := range candidates {
			all = append(all, c.Subject)
			c.Beside = all[0]
		}
		harness.Turns(b, l.rounds, candidates, func(c *candidate) { c.measure(l) })
	})
	if l.idle > 0 {
		b.Scope(func(b *harness.B) {
			for _, c := range start(b, proxies, only, subjects) {
				c.measureIdle(b, l.idle)
			}
		})
	}
	if len(all) > 0 {
		show(all, l)
	}
}

// proxies are all, ours first.
func proxies(self string, certificates harness.Certificates, behind apps) (all []harness.Server) {
	gateway := harness.Server{Name: ours, Program: self, Args: harness.Arguments("gateway", proxy{Listen: "127.0.0.1:PORT", Apps: behind})}
	all = append(all, gateway)
	if gateway.Name, gateway.UID = ours+", ordinary user", 65533; os.Getuid() == 0 { // whose pipes are limited
		all = append(all, gateway)
	}
	all = append(all, harness.Server{Name: ours + " by a tunnel, both ends", Program: self, Args: harness.Arguments("tunnel", proxy{"127.0.0.1:PORT", behind, certificates})})
	files := openFiles()
	nginx, _ := sandbox.Binary("nginx") // start says that it is missing
	nginx, _ = filepath.EvalSymlinks(nginx)
	root, module := filepath.Join(filepath.Dir(nginx), "root"), "/usr/lib/nginx/modules/ngx_stream_module.so"
	if _, err := os.Stat(root + module); err == nil { // nginx was unpacked there
		module = root + module
	}
	fill := []string{"STREAM", module, "ECHOHOST", echoHost, "BULKHOST", bulkHost, "ECHO", behind.Echo, "BULK", behind.Bulk, "FILES", fmt.Sprint(files), "CLIENTS", fmt.Sprint(files/2 - 100)}
	return append(all,
		harness.Server{Name: "HAProxy", Program: "haproxy", Args: []string{"-db", "-q", "-f", "CONFIG"}, Config: haproxyConfig, Fill: fill},
		harness.Server{Name: "nginx stream", Program: "nginx", Args: []string{"-c", "CONFIG", "-e", "DIR/nginx.log"}, Config: nginxConfig, Fill: fill},
		harness.Server{Name: "sniproxy", Program: "sniproxy", Args: []string{"-f", "-c", "CONFIG"}, Config: sniproxyConfig, Fill: fill},
	)
}

// start starts every proxy that can be started here.
func start(b *harness.B, proxies []harness.Server, only string, subjects map[string]*harness.Subject) (all []*candidate) {
	for _, r := range b.Servers(only, proxies, func(r *harness.Running) { harness.Check(harness.Must(net.Dial("tcp", r.Addr)).Close()) }) {
		if subjects[r.Name] == nil {
			subjects[r.Name] = &harness.Subject{Name: r.Name}
		}
		all = append(all, &candidate{r, subjects[r.Name]})
		if strings.Contains(r.Name, "ordinary user") {
			openIdle(b, r.Addr, 500) // they take the pipes of such a user if they can
		}
	}
	return all
}

// measure does one round.
func (c *candidate) measure(l load) {
	for _, part := range []struct {
		figure string
		n      float64 // CPU seconds are divided by it; 0 leaves the part out
		do     func()
	}{
		{"connection", float64(l.connections) / 1e6, func() { harness.Repeat(4, l.connections, func() { ask(c.Addr, 1) }) }},
		{"bare", float64(l.connections) / 1e6, func() { harness.Repeat(4, l.connections, func() { touch(c.Addr) }) }},
		{"request", float64(l.requests) / 1e6, func() { harness.AtOnce(8, l.requests, func(n int) { ask(c.Addr, n) }) }},
		{"bulk", float64(l.bytes) / (1 << 30), func() { harness.AtOnce(4, l.bytes, func(n int) { stream(c.Addr, n) }) }},
	} {
		if part.n > 0 {
			c.Add(part.figure, harness.Spent(c.PID(), part.do).Seconds()/part.n)
		}
	}
}

// measureIdle opens as many idle connections as fit, at most n.
func (c *candidate) measureIdle(b *harness.B, n int) {
	n = min(n, (openFiles()-1200)/2) // an idle connection holds two descriptors
	b.Scope(func(b *harness.B) {
		memory, files := harness.Holds(c.PID())
		openIdle(b, c.Addr, n)
		b.Pause(300 * time.Millisecond)
		memoryThen, filesThen := harness.Holds(c.PID())
		c.Add("idle KiB", float64(memoryThen-memory)/1024/float64(n))
		c.Add("idle files", float64(filesThen-files)/float64(n))
		c.Add("idle", float64(n))
	})
}

// openFiles is how many files a process may have open.
func openFiles() int {
	var limit syscall.Rlimit
	harness.Check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	return int(min(limit.Max, 1<<20))
}

// show prints what was measured, in brackets how many times that of the first candidate it is, and how
// that one does beside the best of the other proxies.
func show(all []*harness.Subject, l load) {
	harness.Print(fmt.Sprintf("Medians of %d rounds by turns; in brackets: times that of %s", l.rounds, all[0].Name), all, []harness.Column{
		{Head: "CPU µs per new connection", Figure: "connection", Format: "%.0f", Quantile: .5}, {Head: "without an exchange", Figure: "bare", Format: "%.0f", Quantile: .5},
		{Head: "CPU µs per 1 KiB request", Figure: "request", Format: "%.1f", Quantile: .5}, {Head: "CPU s per GiB", Figure: "bulk", Format: "%.2f", Quantile: .5},
		{Head: "KiB per idle connection", Figure: "idle KiB", Format: "%.1f"}, {Head: "descriptors", Figure: "idle files", Format: "%.1f"},
		{Head: "idle connections", Figure: "idle", Format: "%.0f"},
	})
	for _, aim := range []struct {
		figure string
		times  float64
	}{{"connection", .9}, {"bare", .9}, {"request", .9}, {"bulk", .35}} {
		least, best := 0., ""
		for _, s := range all {
			if times := s.Times(aim.figure, .5); !strings.HasPrefix(s.Name, ours) && times > 0 && (best == "" || times < least) {
				least, best = times, s.Name
			}
		}
		if strings.HasPrefix(all[0].Name, ours) && best != "" {
			fmt.Printf("%s, %s: %.2f × %s, at most %.2f ×: %s\n", all[0].Name, aim.figure, 1/least, best, aim.times, map[bool]string{true: "met", false: "MISSED"}[1/least <= aim.times])
		}
	}
}

// The servers' configurations.
var (
	//go:embed haproxy.conf
	haproxyConfig string
	//go:embed nginx.conf
	nginxConfig string
	//go:embed sniproxy.conf
	sniproxyConfig string
)
