// Package console shows what pages of the console cost a large service, and what browsers that stay
// open cost whoever else uses it: a change on its way to a sidecar, a lookup, and memory.
package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api"
	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/consoletest"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// New is the benchmark.
func New(flags *flag.FlagSet) harness.Command {
	var s size
	flags.IntVar(&s.Apps, "apps", 2000, "apps, each with five instances")
	flags.IntVar(&s.Callees, "callees", 20, "apps that each of them may call")
	flags.IntVar(&s.Clusters, "clusters", 100, "other clusters, none of which answers")
	browsers := flags.Int("browsers", 50, "browsers that stay open")
	rounds := flags.Int("rounds", 3, "with and without browsers, by turns")
	lasts := flags.Duration("lasts", 20*time.Second, "how long a round takes")
	return harness.Command{
		Short: "-apps=100 -clusters=5 -browsers=5 -rounds=1 -lasts=3s",
		Run: func(b *harness.B) {
			harness.Progress("%d apps, %d callees each, %d clusters", s.Apps, s.Callees, s.Clusters)
			w := start(b, s)
			w.pages(b)
			w.openPages(b, *browsers, *rounds, *lasts)
		},
	}
}

// size is how much a service holds.
type size struct{ Apps, Callees, Clusters int }

func (s size) app(i int) catalog.App {
	i = (i + s.Apps) % s.Apps
	return catalog.App{Namespace: fmt.Sprintf("team-%d", i/25), ID: fmt.Sprintf("app-%d", i)}
}

// selection lets an app call those after it, here or in some other cluster.
func (s size) selection(i, weight int) *catalog.AppEndpoints {
	o := &catalog.AppEndpoints{App: s.app(i)}
	for k := range s.Callees {
		o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: s.app(i + k + 1), Routes: []catalog.RouteSpec{
			{Cluster: catalog.LocalCluster, Weight: uint32(weight)}, {Cluster: fmt.Sprintf("c%d", (i+k)%s.Clusters), Priority: 1},
		}})
	}
	return o
}

// write writes all objects into the directory of a file store: selections, which change, each in a
// file.
func (s size) write(dir string) {
	file := func(name string, text []byte) { harness.Check(os.WriteFile(filepath.Join(dir, name), text, 0o600)) }
	var all [][]byte
	for i := range s.Clusters {
		all = append(all, api.EncodeYAML(&catalog.Cluster{Name: fmt.Sprintf("c%d", i), Gateways: []string{fmt.Sprintf("127.0.0.1:%d", 2+i)}, StaleAfter: 10 * time.Second}))
	}
	for i := range s.Apps {
		app := s.app(i)
		file(app.ID+".yaml", api.EncodeYAML(s.selection(i, 1)))
		for n := range 5 {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(n + 1)}), harness.Port)
			all = append(all, api.EncodeYAML(&catalog.AppInstance{Namespace: app.Namespace, Name: fmt.Sprintf("%s-%d", app.ID, n), App: app.ID, Address: at}))
		}
	}
	file("all.yaml", bytes.Join(all, []byte("---\n")))
}

// pages are the names and paths of those that are measured.
func (s size) pages() [][2]string {
	app := s.app(s.Apps / 2).String()
	return [][2]string{
		{"overview, every cluster away", "/"}, {"map", "/map"}, {"map of a namespace", "/map?namespace=" + s.app(0).Namespace},
		{"map around an app, 2 steps", "/map?steps=2&app=" + app}, {"map of a cluster", "/map?cluster=c1"}, {"apps", "/apps"}, {"app", "/apps/" + app},
		{"explain", "/explain?from=" + app + "&to=" + s.app(s.Apps/2+1).String()}, {"plan", "/plan?object=AppEndpoints/" + app},
		{"plan of a deletion", "/plan?delete=AppEndpoints/" + app}, {"objects", "/objects"}, {"object", "/objects/AppEndpoints/" + app},
		{"trust", "/trust"}, {"links", "/links"}, {"a link", "/links/c1"}, {"calls", "/calls"}, {"sidecars", "/sidecars"}, {"events", "/events"},
	}
}

// world is a service with a console, and an operator.
type world struct {
	size
	service *sandbox.Service
	browser *consoletest.Browser
	conn    *grpc.ClientConn
}

// start starts the service and waits until it has all objects.
func start(b *harness.B, s size) *world {
	objects, data := b.Path("objects"), b.Path("data")
	harness.Check(os.Mkdir(objects, 0o700))
	s.write(objects)
	w := &world{size: s, service: harness.Must(b.Sandbox().Service(b, sandbox.ServiceOptions{
		Cluster: "west", Store: map[string]any{"file": map[string]any{"path": objects}},
		Listen:   map[string]any{"console": fmt.Sprintf("127.0.0.1:%d", harness.Must(sandbox.FreePort()))},
		Settings: map[string]any{"dataDir": data, "log": map[string]any{"level": "error"}},
	}))}
	w.conn = b.Dial(w.service.Resolver, nil)
	b.Await("the service has all instances", 50*time.Millisecond, func() {
		n := harness.Must(pb.NewStatusClient(w.conn).Status(b, &pb.StatusRequest{})).GetInstances()
		harness.Assert(int(n) == 5*s.Apps, "%d instances", n)
	})
	w.browser = harness.Must(consoletest.Enter(b, string(harness.Must(os.ReadFile(filepath.Join(data, "console-west.url"))))))
	b.Defer(w.browser.Close)
	return w
}

// pages shows what each page costs the service.
func (w *world) pages(b *harness.B) {
	idle := harness.Spent(w.service.PID(), func() { b.Pause(2 * time.Second) })
	var all []*harness.Subject
	for _, p := range w.size.pages() {
		bytes, _, err := w.browser.Fetch(b, p[1])
		harness.Check(err)
		b.Pause(time.Second) // until what that has begun has ended
		s := &harness.Subject{Name: p[0], Held: true}
		s.Add("size", float64(bytes)/1000)
		for range 7 {
			begin := time.Now()
			cpu := harness.Spent(w.service.PID(), func() { harness.Must(w.browser.Get(b, p[1])) })
			t := time.Since(begin)
			s.Took("cpu", cpu-time.Duration(float64(idle)*t.Seconds()/2))
			s.Took("time", t)
		}
		all = append(all, s)
	}
	harness.Print("A page of the console", all, []harness.Column{
		{Head: "CPU ms", Figure: "cpu", Format: "%.2f", Quantile: .5, Most: 300}, {Head: "time ms", Figure: "time", Format: "%.2f", Quantile: .5}, {Head: "kB", Figure: "size", Format: "%.0f"},
	})
	fmt.Printf("at rest the service uses %.1f %% of a processor\n", 50*idle.Seconds())
}

// changeEvery is how often somebody changes a selection, which each open page shows.
const changeEvery = 500 * time.Millisecond

// openPages shows what browsers that stay open cost others, with and without them by turns.
func (w *world) openPages(b *harness.B, browsers, rounds int, lasts time.Duration) {
	without := &harness.Subject{Name: "0"}
	with := &harness.Subject{Name: fmt.Sprint(browsers), Beside: without}
	for i := range rounds {
		for s, n := range map[*harness.Subject]int{without: 0, with: browsers} {
			harness.Progress("round %d of %d with %d browsers for %s", i+1, rounds, n, lasts)
			w.round(b, s, n, lasts)
		}
	}
	harness.Print("Browsers that stay open, while a selection changes each "+changeEvery.String(), []*harness.Subject{without, with}, []harness.Column{
		{Head: "change followed p50 ms", Figure: "change", Format: "%.2f", Quantile: .5}, {Head: "p99 ms", Figure: "change", Format: "%.2f", Quantile: .99},
		{Head: "lookup by gRPC p50 ms", Figure: "lookup", Format: "%.2f", Quantile: .5}, {Head: "p99 ms", Figure: "lookup", Format: "%.2f", Quantile: .99},
		{Head: "CPU s/s", Figure: "cpu", Format: "%.2f", Quantile: .5}, {Head: "pages/s", Figure: "pages", Format: "%.1f", Quantile: .5},
		{Head: "RSS MiB", Figure: "rss", Format: "%.1f"}, {Head: "most", Figure: "rss", Format: "%.1f", Quantile: 1},
	})
}

// round measures for a while.
func (w *world) round(b *harness.B, s *harness.Subject, browsers int, lasts time.Duration) {
	ctx, cancel := context.WithTimeout(b, lasts)
	defer cancel()
	var shown atomic.Int64
	var changes, lookups []time.Duration
	parts := []func(){
		func() {
			every(changeEvery, &changes, func(i int) { // an answer comes once lookups follow
				object := w.selection(i%w.Apps, 1+i%7+int(time.Now().UnixNano()%90))
				harness.Must(pb.NewObjectsClient(w.conn).Apply(ctx, &pb.ApplyRequest{Objects: []*pb.ApplyObject{{Json: api.EncodeJSON(object)}}}))
			})
		},
		func() {
			every(5*time.Millisecond, &lookups, func(i int) {
				harness.Must(pb.NewResolverClient(w.conn).Resolve(ctx, &pb.ResolveRequest{Caller: wire.App(w.app(i)), App: wire.App(w.app(i + 1))}))
			})
		},
	}
	for i := range browsers {
		parts = append(parts, func() { w.browse(ctx, i, &shown) })
	}
	for i, part := range parts {
		parts[i] = func() {
			if err := harness.Try(part); ctx.Err() == nil { // else it only says that the round is over
				harness.Check(err)
			}
		}
	}
	s.Add("cpu", harness.Spent(w.service.PID(), func() { harness.Together(parts...) }).Seconds()/lasts.Seconds())
	s.Add("pages", float64(shown.Load())/lasts.Seconds())
	s.Took("change", changes...)
	s.Took("lookup", lookups...)
	s.MiB("rss", harness.Resident(w.service.PID()))
}

// every does something at a steady rate until it fails, and notes how long it takes.
func every(d time.Duration, took *[]time.Duration, do func(i int)) {
	for i := 0; ; i++ {
		begin := time.Now()
		do(i)
		*took = append(*took, time.Since(begin))
		time.Sleep(time.Until(begin.Add(d)))
	}
}

// browse keeps a page open as live.js does, until ctx ends.
func (w *world) browse(ctx context.Context, i int, shown *atomic.Int64) {
	path := w.size.pages()[[]int{0, 1, 3, 6, 17}[i%5]][1] // those that stay open
	_, mark, err := w.browser.Fetch(ctx, path)
	harness.Check(err)
	stream := harness.Must(w.browser.Live(ctx))
	defer stream.Close()
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		text, is := strings.CutPrefix(lines.Text(), "data: ")
		var state struct{ Mark string }
		if !is || json.Unmarshal([]byte(text), &state) != nil || state.Mark == mark {
			continue
		}
		if _, now, err := w.browser.Fetch(ctx, path); err == nil { // else it keeps what it has, and asks again with the next event
			mark = now
			shown.Add(1)
		}
	}
}
