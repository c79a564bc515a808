// Command resolvebench measures ResolveID of Isthmus as daprd calls it. It compares Isthmus with a
// plain map and with every other resolver of Dapr's that can run here. All run in one process, in
// many short rounds by turns.
//
// On Linux it runs in a network namespace of its own with nothing but loopback: mdns uses every
// network of the machine. Without such a namespace it leaves mdns out.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/components-contrib/nameresolution/hashicorp/consul"
	"github.com/dapr/components-contrib/nameresolution/kubernetes"
	"github.com/dapr/components-contrib/nameresolution/mdns"
	"github.com/dapr/components-contrib/nameresolution/nameformat"
	"github.com/dapr/components-contrib/nameresolution/sqlite"
	registry "github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/dapr/pkg/diagnostics/utils"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/component"
	"github.com/isthmus-mesh/isthmus/components/dial"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// The aims: on 2 cores where a look-up in a map costs 22 ns serial and 10 ns parallel, at most 35
// and 15. Faster and slower machines have the same ratios.
const (
	aimSerial   = 35.0 / 22
	aimParallel = 15.0 / 10
)

func main() {
	harness.Main(map[string]harness.Benchmark{"resolve": func(flags *flag.FlagSet) harness.Command {
		rounds := flags.Int("rounds", 101, "rounds in which everything is measured once")
		slice := flags.Duration("slice", 4*time.Millisecond, "how long each measurement takes")
		return harness.Command{Short: "-rounds=3 -slice=1ms", Run: func(b *harness.B) {
			if os.Getenv(alone) != "" || !inNamespace(b) {
				run(b, *rounds, *slice)
			}
		}}
	}})
}

// alone is the variable that says that the network is this program's own.
const alone = "ISTHMUS_TEST_ALONE"

// inNamespace runs the program again in a network namespace of its own, if one can be had.
func inNamespace(b *harness.B) bool {
	namespace := []string{"--user", "--map-root-user", "--net", "--kill-child", "sh", "-ec", `ip link set lo up multicast on; exec "$0" "$@"`}
	if exec.CommandContext(b, "unshare", append(namespace, "true")...).Run() != nil {
		return false
	}
	cmd := exec.CommandContext(b, "unshare", append(append(namespace, harness.Must(os.Executable())), os.Args[1:]...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), alone+"=yes"), os.Stdout, os.Stderr
	harness.Check(cmd.Run())
	return true
}

func run(b *harness.B, rounds int, slice time.Duration) {
	w := &ways{B: b}
	w.maps()
	w.isthmus()
	w.peers()
	measured := 0
	harness.Turns(b, rounds, w.all, func(s *way) {
		if measured++; measured%len(w.all) == 1 {
			runtime.GC() // at the beginning of a round, so that there is none during it
		}
		s.measure(slice)
	})
	var subjects []*harness.Subject
	for _, s := range w.all {
		s.Beside = &w.all[0].Subject
		subjects = append(subjects, &s.Subject)
	}
	harness.Print(fmt.Sprintf("ResolveID on %d cores: medians of %d rounds by turns, and the best; in brackets: times that of map[App]", runtime.GOMAXPROCS(0), rounds), subjects, []harness.Column{
		{Head: "serial ns", Figure: "serial", Format: "%.1f", Quantile: .5, Times: aimSerial}, {Head: "parallel ns", Figure: "parallel", Format: "%.1f", Quantile: .5, Times: aimParallel},
		{Head: "allocations", Figure: "allocations", Format: "%.1f", Quantile: .5, Most: 0.05},
		{Head: "best serial ns", Figure: "serial", Format: "%.1f"}, {Head: "best parallel ns", Figure: "parallel", Format: "%.1f"},
	})
}

// way is one way to look an app up.
type way struct {
	harness.Subject
	loop  func(n int) error // makes look-ups
	n     int               // how many of them fit into a slice, but at least
	least int               // so many
}

// measure notes nanoseconds for each look-up: in one goroutine, and wall time over those of as many
// as there are cores.
func (s *way) measure(slice time.Duration) {
	if s.n == 0 {
		took := time.Duration(0)
		for s.n = 64; took <= slice/2; s.n *= 2 {
			took = s.timed(1)
		}
		s.n = max(int(float64(s.n/2)*float64(slice)/float64(took)), s.least, 1)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	took := s.timed(1)
	runtime.ReadMemStats(&after)
	s.Add("serial", float64(took)/float64(s.n))
	// Rounded to a tenth, since something in the background always allocates a little.
	s.Add("allocations", float64((10*(after.Mallocs-before.Mallocs)+uint64(s.n)/2)/uint64(s.n))/10)
	procs := runtime.GOMAXPROCS(0)
	s.Add("parallel", float64(s.timed(procs))/float64(s.n*procs))
}

// timed makes n look-ups in each of several goroutines.
func (s *way) timed(goroutines int) time.Duration {
	start := time.Now()
	harness.AtOnce(goroutines, goroutines*s.n, func(n int) {
		if err := s.loop(n); err != nil {
			harness.Check(fmt.Errorf("%s: %w", s.Name, err))
		}
	})
	return time.Since(start)
}

// ways are all that are compared; the first is what the others are compared with.
type ways struct {
	*harness.B
	all []*way
}

func (w *ways) add(name string, held bool, loop func(n int) error) {
	s := &way{Subject: harness.Subject{Name: name, Held: held}, loop: loop}
	if strings.HasSuffix(name, "in turn") {
		s.least = 4 * most // most of them not for the first time
	}
	w.all = append(w.all, s)
}

// addResolver adds one of Dapr's interface, once it answers.
func (w *ways) addResolver(name string, r nr.Resolver, md nr.Metadata, req nr.ResolveRequest) {
	err := r.Init(w, md)
	if err == nil {
		w.Cleanup(r.Close)
		_, err = r.ResolveID(w, req)
	}
	if err != nil {
		harness.Progress("left out: %s: %v", name, err)
		return
	}
	w.add(name, false, func(n int) error {
		ctx := context.Background()
		for range n {
			if _, err := r.ResolveID(ctx, req); err != nil {
				return err
			}
		}
		return nil
	})
}

// The sizes of selections: a look-up must cost the same in a small one and in a large one. It costs
// a little less for an app with a single instance, as there is no choice.
var selections = []selection{{first: 0, callees: 10, instances: 1}, {first: 10, callees: 10, instances: 10}, {first: 0, callees: most, instances: 10}}

const most = 10_000 // callees

// selection is a number of consecutive apps of the fleet.
type selection struct{ first, callees, instances int }

func (s selection) caller() catalog.App {
	return catalog.App{Namespace: harness.Namespace, ID: fmt.Sprintf("caller-of-%d-%d", s.callees, s.instances)}
}

// apps returns the callees. Each has its own copy of its name, as in a request.
func (s selection) apps() (apps []catalog.App) {
	for i := range s.callees {
		app := harness.App(s.first + i)
		apps = append(apps, catalog.App{Namespace: strings.Clone(app.Namespace), ID: strings.Clone(app.ID)})
	}
	return apps
}

// maps adds the baseline: a plain map without a lock, without a choice among instances, that never
// changes.
func (w *ways) maps() {
	byApp := map[catalog.App]string{}
	for i := range most {
		byApp[harness.App(i)] = harness.Instance(i, 0).Address.String()
	}
	apps := selections[2].apps()
	one := apps[most/2]
	w.add("map[App], 10,000 apps", false, func(n int) error {
		for range n {
			if _, ok := byApp[one]; !ok {
				return catalog.ErrNotFound
			}
		}
		return nil
	})
	w.add("map[App], 10,000 apps in turn", false, func(n int) error {
		for i := range n {
			if _, ok := byApp[apps[i%len(apps)]]; !ok {
				return catalog.ErrNotFound
			}
		}
		return nil
	})
}

// isthmus starts a resolver service in this process, and adds a resolver for each selection: alone, and
// as daprd calls it, where Dapr's registry makes it and Dapr's interface calls it.
func (w *ways) isthmus() {
	s := w.NewService(harness.Config{Cluster: "west", Certificates: harness.Certificates(w.Dir())})
	s.Run(w.B)
	var objects []catalog.Object
	var instances []catalog.Instance
	for _, s := range selections {
		own := &catalog.AppEndpoints{App: s.caller()}
		for i := range s.callees {
			own.Endpoints = append(own.Endpoints, catalog.Endpoint{App: harness.App(s.first + i), Line: int32(8 + i)})
		}
		objects = append(objects, own)
	}
	for i := range most {
		for j := range 10 {
			if i >= selections[0].callees || j == 0 {
				instances = append(instances, harness.Instance(i, j))
			}
		}
	}
	harness.Apply(w, s.Topology, harness.Full(objects, instances))
	for _, selection := range selections {
		name := fmt.Sprintf("Isthmus, %d callees × %d", selection.callees, selection.instances)
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(50_100+selection.first+selection.instances))
		r := w.Sidecar("west", s.Address(), harness.Certificates(w.Dir()), catalog.Instance{App: selection.caller(), Address: at})
		apps := selection.apps()
		one := apps[len(apps)/2]
		harness.Must(r.ResolveID(w, one))
		w.add(name, true, func(n int) error {
			ctx := context.Background()
			for range n {
				if _, err := r.ResolveID(ctx, one); err != nil {
					return err
				}
			}
			return nil
		})
		w.add(name+", in turn", false, func(n int) error {
			ctx := context.Background()
			for i := range n {
				if _, err := r.ResolveID(ctx, apps[i%len(apps)]); err != nil {
					return err
				}
			}
			return nil
		})
		resolvers := registry.NewRegistry()
		resolvers.Logger = quiet()
		component.New(harness.Quiet, dial.New(harness.Quiet, utils.SpanFromContext, component.Answer)).Register(resolvers)
		w.addResolver(name+", as daprd calls it", harness.Must(resolvers.Create(component.Name, "v1", component.Name)), nr.Metadata{
			Instance:      nr.Instance{AppID: selection.caller().ID, Namespace: harness.Namespace, Address: "127.0.0.1", DaprInternalPort: int(at.Port()) + 100},
			Configuration: map[string]any{"resolver": s.Address(), "cluster": "west", "identity": map[string]any{"insecure": true}, "resolveTimeout": "30s"},
		}, nr.ResolveRequest{ID: one.ID, Namespace: one.Namespace, Port: 50002})
	}
}

// quiet is a logger that writes errors only.
func quiet() logger.Logger {
	l := logger.NewLogger("resolvebench")
	l.SetOutputLevel(logger.FatalLevel)
	return l
}

// peers adds the resolvers of components-contrib that can run. They look this process up, which is
// registered with each of them.
func (w *ways) peers() {
	orders := nr.Instance{AppID: "orders", Namespace: "shop", Address: "127.0.0.1", DaprHTTPPort: 3500, DaprInternalPort: 50002, AppPort: 8080}
	req := nr.ResolveRequest{ID: orders.AppID, Namespace: orders.Namespace, Port: orders.DaprInternalPort}
	for _, p := range []struct {
		name          string
		make          func(logger.Logger) nr.Resolver
		configuration any
	}{
		{"nameformat (looks nothing up)", nameformat.NewResolver, map[string]string{"format": "{appid}.shop.example:50002"}},
		{"kubernetes (looks nothing up)", kubernetes.NewResolver, nil},
		{"sqlite", sqlite.NewResolver, map[string]string{"connectionString": "file:" + w.Path("names.db")}},
		{"mdns", mdns.NewResolver, nil},
	} {
		if p.name == "mdns" && os.Getenv(alone) == "" {
			harness.Progress("left out: mdns: needs a network namespace of its own, so that nothing leaves this machine: unprivileged user namespaces, or root, and unshare and ip")
			continue
		}
		w.addResolver(p.name, p.make(quiet()), nr.Metadata{Instance: orders, Configuration: p.configuration}, req)
	}
	harness.Progress("left out: aws.cloudmap: needs an account at AWS")
	server, err := servers.StartConsul(w, w.Dir(), servers.ConsulOptions{})
	if err != nil {
		harness.Progress("left out: consul with its cache: %v", err)
		return
	}
	w.Cleanup(server.Kill)
	w.addResolver("consul with its cache", consul.NewResolver(quiet()), nr.Metadata{Instance: orders, Configuration: map[string]any{
		"client":   map[string]any{"address": server.Addr(), "scheme": "http"},
		"useCache": true,
		"advancedRegistration": map[string]any{
			"id": "orders-1", "name": orders.AppID, "address": orders.Address, "port": orders.AppPort, "meta": map[string]string{"DAPR_PORT": "50002"},
			// The cache follows health checks, so it never has an app without one.
			"check": map[string]any{"ttl": "1h", "status": "passing"},
		},
	}}, req)
	last := w.all[len(w.all)-1]
	w.Await("Consul's cache is warm", 50*time.Millisecond, func() {
		last.n = 100
		harness.Assert(last.timed(1) < 100*20*time.Microsecond, "it answers too slowly for a cache")
	})
	last.n = 0 // it is measured from here
}
