// Package calls measures calls through daprd, in short rounds by turns: what one costs the caller's
// sidecar, and what one of an actor in another cluster costs.
package calls

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// options say how much is measured.
type options struct{ rounds, calls int }

// Sidecar compares what a call costs in the caller's sidecar: daprd with Isthmus, by the way of
// production with a resolver service, Sentry and mTLS, beside stock daprd with the cheapest of its
// resolvers, which only puts a name into a pattern. Both call the same apps.
func Sidecar(flags *flag.FlagSet) harness.Command {
	var o options
	flags.IntVar(&o.rounds, "rounds", 31, "rounds in which everything is measured once")
	flags.IntVar(&o.calls, "calls", 1000, "calls of each kind, by each caller, in a round")
	return harness.Command{Short: "-rounds=2 -calls=50", Run: func(b *harness.B) { compare(b, o) }}
}

// Actors compares a call of an actor in another cluster with a service invocation of the same app
// there.
func Actors(flags *flag.FlagSet) harness.Command {
	rounds := flags.Int("rounds", 31, "rounds in which everything is measured once")
	calls := flags.Int("calls", 200, "calls of each kind in a round, one at a time")
	return harness.Command{
		Short: "-rounds=2 -calls=20",
		Run: func(b *harness.B) {
			ways := startMesh(b)
			measure := func(w *way) { w.measure(*calls) }
			harness.Turns(b, 1, ways, measure) // connects, and warms up
			var all []*harness.Subject
			for _, w := range ways {
				w.Forget()
				w.Beside, w.Held = &ways[0].Subject, w == ways[len(ways)-1]
				all = append(all, &w.Subject)
			}
			harness.Turns(b, *rounds, ways, measure)
			harness.Print(fmt.Sprintf("A call with a body of 1 KiB, one at a time: medians of %d rounds of %d calls by turns; in brackets: times that of service invocation in the same round. CPU is of all sidecars, gateways and bridges.", *rounds, *calls),
				all, []harness.Column{
					{Head: "p50 ms", Figure: "p50", Format: "%.2f", Quantile: .5, Times: 1.5}, {Head: "p99 ms", Figure: "p99", Format: "%.2f", Quantile: .5, Times: 2},
					{Head: "CPU ms", Figure: "cpu", Format: "%.2f", Quantile: .5, Times: 1.7},
				})
		},
	}
}

// Bodies of requests.
var (
	body  = bytes.Repeat([]byte{'x'}, 1<<10)
	large = bytes.Repeat([]byte{'x'}, 64<<10)
)

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: many}}

// send makes a request, and returns its answer.
func send(b *harness.B, method, url string, header http.Header, content []byte) []byte {
	req := harness.Must(http.NewRequestWithContext(b, method, url, bytes.NewReader(content)))
	maps.Copy(req.Header, header)
	res := harness.Must(client.Do(req))
	defer res.Body.Close()
	text := harness.Must(io.ReadAll(res.Body))
	harness.Assert(res.StatusCode == http.StatusOK, "%s %s: %s: %.300s", method, url, res.Status, text)
	return text
}

// post sends a body, and wants it back.
func post(b *harness.B, url string, body []byte) {
	text := send(b, http.MethodPost, url, nil, body)
	harness.Assert(len(text) == len(body), "%s: %d bytes: %.300s", url, len(text), text)
}

// compare measures the callers.
func compare(b *harness.B, o options) {
	callers := startCallers(b)
	// Callers of one kind follow each other at once, as they are compared.
	round := func(k *kind) {
		harness.Turns(b, 1, callers, func(c *caller) { c.measure(b, k, o) })
	}
	harness.Turns(b, 1, kinds, round) // connects, and warms up
	var all []*harness.Subject
	for _, c := range callers {
		for _, k := range kinds {
			s := &harness.Subject{Name: c.name + ", " + k.name, Held: c != callers[0]}
			if c.measured[k], all = s, append(all, s); s.Held {
				s.Beside = callers[0].measured[k]
			}
		}
	}
	harness.Turns(b, o.rounds, kinds, round)
	harness.Print(fmt.Sprintf("A call in the caller's daprd: medians of %d rounds of %d calls by turns, %d at a time or as named; in brackets: times that of stock daprd in the same round", o.rounds, o.calls, few),
		all, []harness.Column{
			{Head: "CPU µs", Figure: "cpu", Format: "%.1f", Quantile: .5, Times: 1}, {Head: "first quartile", Figure: "cpu", Format: "%.1f", Quantile: .25},
			{Head: "third", Figure: "cpu", Format: "%.1f", Quantile: .75}, {Head: "best", Figure: "cpu", Format: "%.1f"},
			{Head: "p99 ms", Figure: "p99", Format: "%.1f", Quantile: .5, Times: 1}, {Head: "allocations", Figure: "allocations", Format: "%.1f", Quantile: .5},
		})
	for _, c := range callers {
		if harness.Profiles != "" { // of calls of all kinds
			harness.Together(func() {
				profile := c.pprof(b, "profile?seconds=15")
				harness.Check(os.WriteFile(filepath.Join(harness.Profiles, c.App.ID+".pprof"), profile, 0o644))
			}, func() {
				for n, began := 0, time.Now(); time.Since(began) < 15*time.Second; n++ {
					c.make(b, kinds[n%len(kinds)], o)
				}
			})
		}
	}
}

// kind is a kind of calls, so many at a time.
type kind struct {
	name string
	at   int
	call func(*harness.B, *caller)
}

// How many calls are under way at a time.
const (
	few  = 4
	many = 1000
)

var kinds = []*kind{
	{"HTTP GET", few, get},
	{"HTTP POST, 1 KiB", few, func(b *harness.B, c *caller) { post(b, c.InvokeURL(overHTTP.ID, "echo"), body) }},
	{"HTTP POST, 64 KiB", few, func(b *harness.B, c *caller) { post(b, c.InvokeURL(overHTTP.ID, "echo"), large) }},
	{"HTTP GET, 1,000 at a time", many, get},
	{"gRPC, proxied", few, proxied},
	{"gRPC, 64 KiB", few, func(b *harness.B, c *caller) {
		harness.Must(sandbox.ProxyNamed(b, c.proxied, overGRPC.ID, string(large), nil))
	}},
	{"gRPC, 1,000 at a time", many, proxied},
}

func get(b *harness.B, c *caller) {
	send(b, http.MethodGet, c.InvokeURL(overHTTP.ID, "hello"), nil, nil)
}

func proxied(b *harness.B, c *caller) { harness.Must(sandbox.Proxy(b, c.proxied, overGRPC.ID, nil)) }

// The callees are the last parts of their addresses, so that a pattern of stock daprd's resolver
// leads to them without a lookup.
var (
	overHTTP = catalog.App{Namespace: "default", ID: "101"}
	overGRPC = catalog.App{Namespace: "default", ID: "102"}
)

// caller is a sidecar whose calls are measured.
type caller struct {
	*sandbox.Daprd
	name     string
	profiles string // URL
	proxied  *grpc.ClientConn
	measured map[*kind]*harness.Subject // microseconds of CPU time, and allocations, for each call
}

// startCallers starts a cluster, two callees, and the callers: stock daprd first.
func startCallers(b *harness.B) []*caller {
	s, authority := b.Sandbox(), harness.Must(sandbox.NewAuthority())
	west := harness.Must(s.Cluster(b, sandbox.ClusterOptions{Name: "west", Authority: authority}))
	pattern := fmt.Sprintf("127.0.0.{appid}:%d", harness.Must(sandbox.FreePort()))
	for app, behind := range map[catalog.App]string{
		overHTTP: serve(b, echo()),
		overGRPC: harness.Must(s.App(sandbox.AppOptions{Cluster: "west", App: overGRPC, GRPC: true})).Address,
	} {
		harness.Must(s.Daprd(b, sandbox.DaprdOptions{
			Cluster: "west", App: app, AppAddress: behind, AppProtocol: map[bool]string{true: "grpc", false: "http"}[app == overGRPC], Internal: strings.Replace(pattern, "{appid}", app.ID, 1),
			Sentry: west.Sentry, Configuration: harness.Must(west.Configuration(sandbox.SidecarOptions{App: app})),
		}))
	}
	callers := []*caller{{name: "stock daprd"}, {name: "daprd with Isthmus"}}
	for _, c := range callers {
		app := catalog.App{Namespace: "default", ID: strings.ReplaceAll(strings.ToLower(c.name), " ", "-")}
		configuration := fmt.Sprintf("apiVersion: dapr.io/v1alpha1\nkind: Configuration\nmetadata: {name: stock}\nspec: {nameResolution: {component: nameformat, version: v1, configuration: {format: %q}}}\n", pattern)
		if c != callers[0] {
			configuration = harness.Must(west.Configuration(sandbox.SidecarOptions{App: app}))
		}
		port := strconv.Itoa(harness.Must(sandbox.FreePort()))
		c.Daprd = harness.Must(s.Daprd(b, sandbox.DaprdOptions{
			App: app, Stock: c == callers[0], Sentry: west.Sentry, Configuration: configuration,
			Args: []string{"--enable-profiling", "--profile-port", port, "--log-level", "warn"},
		}))
		c.profiles, c.proxied = "http://127.0.0.1:"+port+"/debug/pprof/", harness.Must(c.Dial())
		b.Cleanup(c.proxied.Close)
		c.measured = map[*kind]*harness.Subject{}
		for _, k := range kinds {
			c.measured[k] = &harness.Subject{}
			b.Await(c.name+", "+k.name, 100*time.Millisecond, func() { k.call(b, c) })
		}
	}
	return callers
}

// pprof reads a profile of the sidecar.
func (c *caller) pprof(b *harness.B, path string) []byte {
	return send(b, http.MethodGet, c.profiles+path, nil, nil)
}

// mallocs is how many objects the sidecar has allocated.
func (c *caller) mallocs(b *harness.B) (n uint64) {
	_, after, _ := strings.Cut(string(c.pprof(b, "heap?debug=1")), "\n# Mallocs = ")
	harness.Must(fmt.Sscan(after, &n))
	return n
}

// measure makes so many calls, and notes what each cost the sidecar.
func (c *caller) measure(b *harness.B, k *kind, o options) {
	mallocs, took := c.mallocs(b), []time.Duration(nil)
	used := harness.Spent(c.PID(), func() { took = c.make(b, k, o) })
	m := c.measured[k]
	m.Add("cpu", float64(used)/float64(len(took))/1e3)
	m.Add("allocations", float64(c.mallocs(b)-mallocs)/float64(len(took)))
	m.Took("p99", harness.Quantile(took, .99))
}

// make makes so many calls, but at least two for each that is under way at a time, and returns how long
// each took.
func (c *caller) make(b *harness.B, k *kind, o options) []time.Duration {
	took := make([]time.Duration, max(o.calls, 2*k.at))
	var next atomic.Int64
	harness.Repeat(k.at, len(took), func() {
		start := time.Now()
		k.call(b, c)
		took[next.Add(1)-1] = time.Since(start)
	})
	return took
}

// way is a way to call the app, with what calls took and cost: milliseconds each.
type way struct {
	harness.Subject
	call func(n int)
}

// measure makes calls one at a time, and notes how long they took and what they cost all processes but
// this one, which calls and answers.
func (w *way) measure(calls int) {
	took := make([]time.Duration, calls)
	before := harness.ChildrenCPU()
	for i := range took {
		start := time.Now()
		w.call(i)
		took[i] = time.Since(start)
	}
	w.Took("cpu", (harness.ChildrenCPU()-before)/time.Duration(calls))
	w.Took("p50", harness.Quantile(took, .5))
	w.Took("p99", harness.Quantile(took, .99))
}

// mesh is two clusters. East has an app that is called as a service and hosts actors, west a caller.
type mesh struct {
	west, east    *sandbox.Cluster
	caller, local *sandbox.Sidecar
}

// actorType lets west's checkout call actors of east, by the end of its selection.
const (
	actorType = `apiVersion: isthmus.dev/v1alpha1
kind: ActorType
metadata: {namespace: shop, name: cart}
spec: {type: Cart, owner: east, allow: [{cluster: west, app: checkout}]}
`
	selected = "  actors: [{type: Cart}]\n"
)

// startMesh starts everything, and waits until each way leads to the app.
func startMesh(b *harness.B) []*way {
	m := &mesh{}
	s, authority := b.Sandbox(), harness.Must(sandbox.NewAuthority())
	for name, into := range map[string]**sandbox.Cluster{"west": &m.west, "east": &m.east} {
		*into = harness.Must(s.Cluster(b, sandbox.ClusterOptions{Name: name, Authority: authority}))
		harness.Must((*into).Placement(b))
	}
	apply(b, m.east, meshtest.Cluster("west"), meshtest.Export("shop", "carts", "west"), actorType)
	apply(b, m.west, meshtest.Cluster("east", m.east.Gateway), meshtest.Selection("shop", "checkout", "app: carts")+selected)
	var app *sandbox.Sidecar
	for _, s := range []struct {
		in   *sandbox.Cluster
		id   string
		at   string
		into **sandbox.Sidecar
	}{
		{m.east, "carts", serve(b, echo()), &app}, {m.east, "neighbour", "", &m.local}, {m.west, "checkout", "", &m.caller},
	} {
		*s.into = harness.Must(s.in.Sidecar(b, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: s.id}, AppAddress: s.at}))
	}
	harness.Must(m.east.Bridge(b, "shop", ""))
	harness.Must(m.west.Bridge(b, "shop", ""))
	ways := m.ways(b)
	for _, w := range ways {
		calm := 0 // placement spreads actors anew, for a while
		b.Await(w.Name, 100*time.Millisecond, func() {
			for i := range actors {
				if err := harness.Try(func() { w.call(i) }); err != nil {
					calm = 0
					harness.Check(err)
				}
			}
			calm++
			harness.Assert(calm >= 3, "not calm yet")
		})
	}
	return ways
}

// apply writes objects as people do.
func apply(b *harness.B, c *sandbox.Cluster, objects ...string) {
	cmd := exec.CommandContext(b, harness.Must(sandbox.Binary("isthmus")), "apply", "-f", "-")
	cmd.Env, cmd.Stdin = append(os.Environ(), c.CommandLine()...), strings.NewReader(strings.Join(objects, "---\n"))
	out, err := cmd.CombinedOutput()
	harness.Assert(err == nil, "apply in %s: %w: %s", c.Name, err, out)
}

// serve has a handler answer, and returns where.
func serve(b *harness.B, h http.Handler) (address string) {
	listener := harness.Listen()
	server := &http.Server{Handler: h, ReadHeaderTimeout: harness.Patience}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Close)
	return listener.Addr().String()
}

// echo is the app: it answers with what it got, as a service and as an actor.
func echo() http.Handler {
	back := func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // the caller sees what is missing
		_, _ = w.Write(text)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /dapr/config", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"entities": []string{"Cart"}, "actorIdleTimeout": "10m"})
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("DELETE /actors/{type}/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("PUT /actors/{type}/{id}/method/echo", back)
	mux.HandleFunc("POST /echo", back)
	mux.HandleFunc("GET /hello", back)
	return mux
}

// actors is how many are called.
const actors = 256

// ways are the ways to the app; the first is what the others are compared with, the last is bridged.
func (m *mesh) ways(b *harness.B) []*way {
	actor := func(by *sandbox.Sidecar) func(int) {
		return func(n int) { post(b, by.ActorURL(fmt.Sprint("Cart/", n%actors), "echo"), body) }
	}
	named := func(name string, call func(int)) *way { return &way{harness.Subject{Name: name}, call} }
	return []*way{
		named("service invocation, other cluster", func(int) { post(b, m.caller.InvokeURL("carts", "echo"), body) }),
		named("actor, within its cluster", actor(m.local)),
		named("actor, other cluster", actor(m.caller)),
	}
}
