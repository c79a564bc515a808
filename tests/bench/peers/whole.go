package peers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/api"
	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/consoletest"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// whole measures the program "isthmus serve" as it ships, with its store, checks, console and the rest. Each
// of its peers has a root of its own.
type whole struct {
	*column
	service *sandbox.Service
	roots   *sandbox.Authority // the service's
	socket  string             // of operators on the same machine
	conn    *grpc.ClientConn   // of one of them
	browser *consoletest.Browser
	members []*member
}

// member is a peer that can be replaced, as a rolling restart does.
type member struct {
	*peer
	end          context.CancelFunc // ends this run of it
	done         chan struct{}
	certificates harness.Certificates
	roots        []byte // PEM, that its certificate chains to
	calls        int    // apps of ours that it may call
}

// wholeFigures are the rows of the second table.
var wholeFigures = []harness.Column{
	{Head: "**memory**: RSS MiB", Figure: "rss", Format: "%.0f"},
	{Head: "**at rest**: CPU % of a core", Figure: "rest", Format: "%.1f"},
	{Head: "**`Cluster` objects**, applied until all are heard or at rest: s", Figure: "applied", Format: "%.1f"}, {Head: "CPU s of it", Figure: "applied cpu", Format: "%.1f"},
	{Head: "**a restart**: ready after s", Figure: "restart", Format: "%.1f"}, {Head: "the routes that name a cluster are ready after s", Figure: "restart named", Format: "%.1f"}, {Head: "all routes in use are ready after s", Figure: "restart used", Format: "%.1f"}, {Head: "CPU s of it", Figure: "restart cpu", Format: "%.1f"},
	{Head: "**a rolling restart of all others**: s", Figure: "roll", Format: "%.1f"}, {Head: "CPU s of it", Figure: "roll cpu", Format: "%.1f"},
	{Head: "lookups meanwhile", Figure: "roll lookups", Format: "%.0f"}, {Head: "of these, without a route", Figure: "roll failed", Format: "%.0f"},
	{Head: "**every other root rotated**: s", Figure: "rotate", Format: "%.1f"}, {Head: "CPU s of it", Figure: "rotate cpu", Format: "%.1f"},
	{Head: "lookups meanwhile", Figure: "rotate lookups", Format: "%.0f"}, {Head: "of these, without a route", Figure: "rotate failed", Format: "%.0f"},
	{Head: "**`isthmus status`**: ms", Figure: "status", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "status size", Format: "%.0f"},
	{Head: "**`isthmus check`**: ms", Figure: "check", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "check size", Format: "%.0f"},
	{Head: "**`isthmus top`**: ms", Figure: "top", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "top size", Format: "%.0f"},
	{Head: "**`isthmus explain`**: ms", Figure: "explain", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "explain size", Format: "%.0f"},
	{Head: "**`isthmus apps`**: ms", Figure: "apps", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "apps size", Format: "%.0f"},
	{Head: "**console**, overview: ms", Figure: "/", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "/ size", Format: "%.0f"},
	{Head: "links: ms", Figure: "/links", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "/links size", Format: "%.0f"},
	{Head: "map: ms", Figure: "/map", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "/map size", Format: "%.0f"},
	{Head: "apps: ms", Figure: "/apps", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "/apps size", Format: "%.0f"},
	{Head: "objects: ms", Figure: "/objects", Format: "%.0f", Quantile: .5}, {Head: "KB", Figure: "/objects size", Format: "%.0f"},
	{Head: "**metrics**: KB", Figure: "metrics size", Format: "%.0f"},
}

// measureWhole measures the program with its peers, which it starts and ends.
func (c *column) measureWhole(b *harness.B, p plan) {
	p.used = min(p.used, c.Peers)
	c.plan = p
	w := &whole{column: c, roots: harness.Must(sandbox.NewAuthority())}
	harness.Progress("%s: the program", c.Name)
	data := b.Path("data")
	w.service = harness.Must(b.Sandbox().Service(b, sandbox.ServiceOptions{
		Cluster: ours, Authority: w.roots, Listen: map[string]any{"console": fmt.Sprintf("127.0.0.1:%d", harness.Must(sandbox.FreePort()))},
		Settings: map[string]any{
			"dataDir": data, "store": map[string]any{"embedded": map[string]any{"path": filepath.Join(data, "isthmus.db")}}, "log": map[string]any{"level": "error"},
		},
	}))
	w.socket = filepath.Join(data, "operator-"+ours+".sock")
	w.conn = harness.Must(grpc.NewClient("unix://"+w.socket, grpc.WithTransportCredentials(insecure.NewCredentials())))
	b.Cleanup(w.conn.Close)
	b.Await("the console is open", 10*time.Millisecond, func() {
		w.browser = harness.Must(consoletest.Enter(b, string(harness.Must(os.ReadFile(filepath.Join(data, "console-"+ours+".url"))))))
	})
	b.Defer(w.browser.Close)
	for i := range c.Peers {
		w.members = append(w.members, w.start(b, i))
	}
	w.apply(b)
	w.idle(b)
	w.surfaces(b)
	w.lookups(b, "roll", func() {
		for _, m := range w.members {
			w.restart(b, m)
		}
	})
	w.lookups(b, "rotate", func() { w.rotate(b) })
	w.again(b)
}

// start starts a peer with a root of its own.
func (w *whole) start(b *harness.B, i int) *member {
	m := &member{calls: w.plan.calls(i)}
	on := harness.Listen()
	m.peer = newPeer(b, peerName(i), w.service.Gateway, on)
	m.certificates, m.roots = w.issue(b, m.name)
	w.run(b, m, on)
	b.Defer(func() { m.stop() })
	return m
}

// issue makes a certificate for a peer, by a root that is new.
func (w *whole) issue(b *harness.B, name string) (_ harness.Certificates, roots []byte) {
	authority := harness.Must(sandbox.NewAuthority())
	c := harness.Certificates(harness.Must(os.MkdirTemp(b.Dir(), name)))
	c.IssueBy(authority, identity.ServiceApp("", name))
	return c, authority.Anchors()
}

// run runs a peer's service until stop.
func (w *whole) run(b *harness.B, m *member, on net.Listener) {
	var ctx context.Context
	ctx, m.end = context.WithCancel(b)
	m.done = make(chan struct{})
	ready := make(chan struct{})
	go func() {
		defer close(m.done)
		err := harness.Try(func() {
			b.Scope(func(b *harness.B) {
				m.serve(b, m.certificates, on, catalog.Trust{Roots: string(w.roots.Anchors())}, w.Peers, w.exports, m.calls)
				close(ready)
				<-ctx.Done()
			})
		})
		if err != nil && b.Err() == nil {
			harness.Progress("%s: %v", m.name, err)
		}
	}()
	select {
	case <-ready:
	case <-m.done:
		harness.Assert(false, "%s has not begun", m.name)
	}
}

func (m *member) stop() { m.end(); <-m.done }

// restart replaces a peer's service by another at the same address.
func (w *whole) restart(b *harness.B, m *member) {
	at := m.PeerListener.Addr().String()
	m.stop()
	w.run(b, m, harness.Must(net.Listen("tcp", at)))
	if m.calls > 0 {
		b.Await(m.name+" has told its exports again", 5*time.Millisecond, func() { harness.Assert(w.state(b)[m.name] == "connected", "it is not heard") })
	}
}

// object is the Cluster object of a peer that has these roots.
func (w *whole) object(m *member, roots []byte) *catalog.Cluster {
	return &catalog.Cluster{Name: m.name, Gateways: []string{m.asked.Addr()}, StaleAfter: catalog.DefaultStaleAfter, RampUp: catalog.DefaultRampUp, Trust: catalog.Trust{Roots: string(roots)}}
}

// put applies objects as a tool does that has all of them.
func (w *whole) put(b *harness.B, objects ...catalog.Object) {
	const atOnce = 100
	for len(objects) > 0 {
		n := min(atOnce, len(objects))
		var req pb.ApplyRequest
		for _, o := range objects[:n] {
			req.Objects = append(req.Objects, &pb.ApplyObject{Json: api.EncodeJSON(o)})
		}
		harness.Must(pb.NewObjectsClient(w.conn).Apply(b, &req))
		objects = objects[n:]
	}
}

// state is how the service hears each peer.
func (w *whole) state(b *harness.B) map[string]string {
	all := map[string]string{}
	for _, p := range harness.Must(pb.NewStatusClient(w.conn).Status(b, &pb.StatusRequest{})).GetPeers() {
		all[p.GetCluster()] = p.GetState()
	}
	return all
}

// settled waits until the peers in use are connected, and the others too or at rest.
func (w *whole) settled(b *harness.B) {
	b.Await("all clusters are heard", 50*time.Millisecond, func() {
		state := w.state(b)
		harness.Assert(len(state) == w.Peers, "%d links", len(state))
		for i, m := range w.members {
			s := state[m.name]
			harness.Assert(s == "connected" || s == catalog.PeerResting && i >= w.used, "%s: %s", m.name, s)
		}
	})
}

func (w *whole) apply(b *harness.B) {
	var all []catalog.Object
	for i := range w.exports {
		all = append(all, &catalog.AppExport{App: appOf(ours, i), Allow: []catalog.Allow{{Cluster: "*", Namespace: harness.Namespace}}},
			&catalog.AppInstance{Namespace: harness.Namespace, Name: appOf(ours, i).ID, App: appOf(ours, i).ID, Address: addressOf(i)})
	}
	callers := &catalog.AppEndpoints{App: watcher}
	for i := range w.used {
		e := catalog.Endpoint{App: appOf(peerName(i), 0)}
		if named(i) {
			e.Routes = []catalog.RouteSpec{{Cluster: peerName(i), Weight: 1}}
		}
		callers.Endpoints = append(callers.Endpoints, e)
	}
	w.put(b, append(all, callers)...)
	all = nil
	for _, m := range w.members {
		all = append(all, w.object(m, m.roots))
	}
	took, cpu := w.spentBy(func() {
		w.put(b, all...)
		w.settled(b)
	})
	w.Add("applied", took.Seconds())
	w.Add("applied cpu", cpu.Seconds())
}

// named tells whether the route to a cluster in use names it, as half of them do.
func named(i int) bool { return i%2 == 0 }

// spentBy is spent of the program.
func (w *whole) spentBy(do func()) (took, cpu time.Duration) {
	before, began := harness.CPU(w.service.PID()), time.Now()
	do()
	return time.Since(began), harness.CPU(w.service.PID()) - before
}

// idle measures while nothing happens.
func (w *whole) idle(b *harness.B) {
	harness.Progress("%s: the program, at rest", w.Name)
	b.Pause(w.plan.settle)
	took, cpu := w.spentBy(func() { b.Pause(w.plan.rest) })
	w.Add("rest", 100*cpu.Seconds()/took.Seconds())
	w.MiB("rss", harness.Resident(w.service.PID()))
}

// surfaces measures what an operator asks.
func (w *whole) surfaces(b *harness.B) {
	harness.Progress("%s: what operators ask", w.Name)
	isthmus := harness.Must(sandbox.Binary("isthmus"))
	from, to := watcher.String(), appOf(peerName(0), 0).String()
	for name, args := range map[string][]string{"status": {"status"}, "check": {"check"}, "top": {"top", "--once"}, "explain": {"explain", "--from", from, to}, "apps": {"apps"}} {
		for range 3 {
			began := time.Now()
			cmd := exec.CommandContext(b, isthmus, append(args, "--socket", w.socket)...)
			out, err := cmd.CombinedOutput()
			harness.Assert(err == nil || name == "check", "isthmus %v: %v: %s", args, err, out)
			w.Took(name, time.Since(began))
			w.Add(name+" size", float64(len(out))/1000)
		}
	}
	for _, path := range []string{"/", "/links", "/map", "/apps", "/objects"} {
		for range 3 {
			began := time.Now()
			bytes, _, err := w.browser.Fetch(b, path)
			harness.Check(err)
			w.Took(path, time.Since(began))
			w.Add(path+" size", float64(bytes)/1000)
		}
	}
	metrics := harness.Must(http.Get("http://" + w.service.Admin + "/metrics"))
	defer metrics.Body.Close()
	w.Add("metrics size", float64(len(harness.Must(io.ReadAll(metrics.Body))))/1000)
}

// lookups looks up the apps in use all the time while something is done.
func (w *whole) lookups(b *harness.B, figure string, do func()) {
	harness.Progress("%s: %s", w.Name, figure)
	var made, failed atomic.Int64
	ctx, cancel := context.WithCancel(b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			r, err := pb.NewResolverClient(w.conn).Resolve(ctx, &pb.ResolveRequest{Caller: wire.App(watcher), App: wire.App(appOf(peerName(i%w.used), 0))})
			if ctx.Err() != nil {
				return
			}
			if made.Add(1); err != nil || r.GetOutcome() != catalog.OK.String() {
				failed.Add(1)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	took, cpu := w.spentBy(do)
	cancel()
	<-done
	w.Add(figure, took.Seconds())
	w.Add(figure+" cpu", cpu.Seconds())
	w.Add(figure+" lookups", float64(made.Load()))
	w.Add(figure+" failed", float64(failed.Load()))
}

// rotate gives each peer another root: first both are trusted, then the peer has a certificate of the new one,
// and then that is trusted alone.
func (w *whole) rotate(b *harness.B) {
	var both, next []catalog.Object
	fresh := make([]harness.Certificates, len(w.members))
	for i, m := range w.members {
		old := m.roots
		fresh[i], m.roots = w.issue(b, m.name)
		both, next = append(both, w.object(m, slices.Concat(old, m.roots))), append(next, w.object(m, m.roots))
	}
	w.put(b, both...)
	for i, m := range w.members {
		m.certificates = fresh[i]
		w.restart(b, m)
	}
	w.put(b, next...)
	w.settled(b)
}

// again restarts the program itself.
func (w *whole) again(b *harness.B) {
	harness.Progress("%s: a restart of the program", w.Name)
	harness.Check(w.service.Stop(b))
	began := time.Now()
	harness.Check(w.service.Restart(b))
	w.Add("restart", time.Since(began).Seconds())
	ready := func(which func(i int) bool) func() {
		return func() {
			for i := range w.used {
				if !which(i) {
					continue
				}
				r := harness.Must(pb.NewResolverClient(w.conn).Resolve(b, &pb.ResolveRequest{Caller: wire.App(watcher), App: wire.App(appOf(peerName(i), 0))}))
				harness.Assert(r.GetOutcome() == catalog.OK.String(), "%s: %s", peerName(i), r.GetOutcome())
			}
		}
	}
	b.Await("the routes that name a cluster are ready", 5*time.Millisecond, ready(named))
	w.Add("restart named", time.Since(began).Seconds())
	b.Await("the routes in use are ready", 5*time.Millisecond, ready(func(int) bool { return true }))
	w.Add("restart used", time.Since(began).Seconds())
	w.settled(b)
	w.Add("restart cpu", harness.CPU(w.service.PID()).Seconds())
}
