package resolverservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// caller is a sidecar that makes lookups all the time, and holds what it finds to what
// every lookup must be.
type caller struct {
	*nameresolution.Resolver
	app  catalog.App
	port int

	mu       sync.Mutex
	lookups  int
	failures []string
	revision uint64
	watched  bool // instances that are missing are failures
}

// sidecarAt starts a sidecar that knows all replicas.
func sidecarAt(t *testing.T, replicas []*replicaProcess, app catalog.App, port int) *caller {
	t.Helper()
	return sidecarIn(t, "west", replicas, app, port)
}

func sidecarIn(t *testing.T, cluster string, replicas []*replicaProcess, app catalog.App, port int) *caller {
	t.Helper()
	var addresses []string
	for _, p := range replicas {
		addresses = append(addresses, p.resolver)
	}
	c := &caller{Resolver: nameresolution.New(nameresolution.Options{Logger: slog.New(slog.DiscardHandler)}), app: app, port: port}
	configuration := map[string]any{
		"resolver": strings.Join(addresses, ", "), "cluster": cluster, "identity": map[string]any{"insecure": true}, "resolveTimeout": "10s",
	}
	if ca := replicas[0].ca; ca != nil {
		f := ca.Config(app).Files
		configuration["identity"] = map[string]any{"files": map[string]any{"cert": f.Cert, "key": f.Key, "ca": f.CA}}
	}
	if err := c.Init(t.Context(), configuration, nameresolution.Instance{App: app, Address: "127.0.0.1", Port: port}); err != nil {
		t.Fatal(err)
	}
	return c
}

// call looks apps up until ctx ends.
func (c *caller) call(ctx context.Context, apps []catalog.App, instances int) {
	for n := 0; ctx.Err() == nil; n++ {
		app := apps[n%len(apps)]
		if app == c.app {
			continue // answered with its own address
		}
		address, err := c.ResolveID(ctx, app)
		d := c.Explain(ctx, app)
		if ctx.Err() != nil {
			return
		}
		c.note(app, address, err, &d, instances)
		time.Sleep(3 * time.Millisecond)
	}
}

// watch says whether instances that are missing are failures.
func (c *caller) watch(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched = on
}

func (c *caller) note(app catalog.App, address string, err error, d *catalog.Decision, instances int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookups++
	fail := func(format string, args ...any) {
		if len(c.failures) < 3 {
			c.failures = append(c.failures, fmt.Sprintf("%s looked up %s: %s", c.app, app, fmt.Sprintf(format, args...)))
		}
	}
	switch {
	case !c.watched && errors.Is(err, catalog.ErrNotFound): // all that there are were with a replica that is missing
	case err != nil:
		fail("%v", err)
	default:
		if _, _, err := net.SplitHostPort(address); err != nil {
			fail("%q is no address", address)
		}
	}
	if d.Revision < c.revision {
		fail("revision %d after %d", d.Revision, c.revision)
	}
	c.revision = max(c.revision, d.Revision)
	if c.watched && (len(d.Routes) != 1 || d.Routes[0].Ready != instances) {
		fail("%+v; want %d instances ready", d.Routes, instances)
	}
}

// fleet is sidecars of several apps, each with as many instances.
type fleet struct {
	t       *testing.T
	apps    []catalog.App
	callers []*caller
	end     func()
}

const instancesOfEach = 3

func startFleet(t *testing.T, replicas []*replicaProcess) *fleet {
	f := &fleet{t: t}
	for _, name := range []string{"checkout", "orders", "billing", "stock"} {
		f.apps = append(f.apps, catalog.App{Namespace: "shop", ID: name})
	}
	for n := range instancesOfEach * len(f.apps) {
		f.callers = append(f.callers, sidecarAt(t, replicas, f.apps[n%len(f.apps)], 50001+n))
	}
	f.whole()
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	for _, c := range f.callers {
		wait.Go(func() { c.call(ctx, f.apps, instancesOfEach) })
	}
	f.end = func() {
		cancel()
		wait.Wait()
	}
	t.Cleanup(func() {
		f.end()
		for _, c := range f.callers {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return f
}

// whole waits until every sidecar finds all instances. From then on those that are
// missing are failures.
func (f *fleet) whole() {
	f.t.Helper()
	for _, c := range f.callers {
		for _, app := range f.apps {
			serverstest.Await(f.t, fmt.Sprintf("%s finds all of %s", c.app, app), func() bool {
				d := c.Explain(f.t.Context(), app)
				return app == c.app || len(d.Routes) == 1 && d.Routes[0].Ready == instancesOfEach
			})
		}
		c.watch(true)
	}
}

// told is how many lookups there were, and how many failed, of which some are told to wrong.
func (f *fleet) told(wrong func(format string, args ...any)) (lookups, failed int) {
	for _, c := range f.callers {
		c.mu.Lock()
		lookups += c.lookups
		failed += len(c.failures)
		for _, failure := range c.failures {
			wrong("%s", failure)
		}
		c.lookups, c.failures = 0, nil
		c.mu.Unlock()
	}
	return lookups, failed
}

// agree waits until every replica has the same view of each app.
func agree(t *testing.T, replicas []*replicaProcess, apps []catalog.App) {
	t.Helper()
	for _, app := range apps {
		var views []string
		serverstest.Await(t, fmt.Sprintf("all replicas have one view of %s; at last %s", app, views), func() bool {
			views = nil
			for _, p := range replicas {
				views = append(views, p.view(app))
			}
			return len(slices.Compact(views)) == 1
		})
	}
}

// Sidecars drain while the replica that they are with is killed, each of the three in turn.
func TestADrainIsKeptOverReplicasThatGo(t *testing.T) {
	t.Parallel()
	retryIfStalled(t, drainIsKept)
}

func drainIsKept(t *testing.T, wrong func(format string, args ...any)) {
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	var replicas []*replicaProcess
	for _, name := range []string{"r1", "r2", "r3"} {
		replicas = append(replicas, newReplica(t, "west", name, etcd.Addr(), ""))
	}
	for _, p := range replicas {
		p.rejoinAfterOutage = "100ms"
		p.start()
	}
	watcher, stays := sidecarAt(t, replicas, checkout, 50001), sidecarAt(t, replicas, orders, 50002)
	defer watcher.Close()
	defer stays.Close()
	awaitSettled(t, etcd, len(replicas))
	counts := func(ready, draining int) func() bool {
		return func() bool {
			d := watcher.Explain(t.Context(), orders)
			return len(d.Routes) == 1 && d.Routes[0].Ready == ready && d.Routes[0].Draining == draining
		}
	}
	for n, p := range replicas {
		var leaving []*caller // enough that some are with the replica that goes
		for i := range 4 {
			leaving = append(leaving, sidecarAt(t, replicas, orders, 50010+10*n+i))
		}
		serverstest.Await(t, "all are ready", counts(5, 0))
		var drains sync.WaitGroup
		for _, c := range leaving {
			drains.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if err := c.Drain(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		p.end(syscall.SIGKILL)
		drains.Wait()
		serverstest.Await(t, "one is ready and four drain", counts(1, 4))
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if d := watcher.Explain(t.Context(), orders); len(d.Routes) != 1 || d.Routes[0].Ready != 1 {
				wrong("after the drain: %+v", d.Routes)
				break
			}
		}
		for _, c := range leaving {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		serverstest.Await(t, "one is left", counts(1, 0))
		p.start()
	}
}

// A cluster of two replicas, each with a gateway, and a peer that hears of an app's
// instances through either, while they are rolled.
func TestAPeersLinkMovesBetweenReplicas(t *testing.T) {
	t.Parallel()
	retryIfStalled(t, linkMoves)
}

func linkMoves(t *testing.T, wrong func(format string, args ...any)) {
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	ca := identitytest.NewCA(t)
	var east []*replicaProcess
	for _, name := range []string{"e1", "e2"} {
		p := newReplica(t, "east", name, etcd.Addr(), "")
		p.certify("east", ca)
		p.rejoinAfterOutage = "100ms"
		p.start()
		east = append(east, p)
	}
	west := newReplica(t, "west", "w1", etcd.Addr(), "")
	west.certify("west", ca)
	west.rejoinAfterOutage = "100ms"
	west.start()
	served := sidecarIn(t, "east", east, orders, 50002)
	defer served.Close()
	asks := sidecarAt(t, []*replicaProcess{west}, checkout, 50001)
	defer asks.Close()
	east[0].apply("apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nmetadata: {namespace: shop, name: orders}\nspec: {allow: [{cluster: west}]}\n---\n" + clusterOnly("west"))
	west.apply(fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: east}\nspec: {gateways: [{address: '%s'}, {address: '%s'}], staleAfter: 4s}\n---\n", east[0].gateway, east[1].gateway) + selectsOrders)
	serverstest.Await(t, "orders is found in east", func() bool {
		_, err := asks.ResolveID(t.Context(), orders)
		return err == nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	calls.Go(func() { asks.call(ctx, []catalog.App{orders}, 1) })
	begin := time.Now()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, p := range east {
			p.end(sig)
			time.Sleep(500 * time.Millisecond)
			p.start()
		}
	}
	cancel()
	calls.Wait()
	for _, failure := range asks.failures {
		wrong("%s", failure)
	}
	t.Logf("both replicas of a peer rolled, and killed, one by one: %d lookups in %s, %d failed", asks.lookups, time.Since(begin).Round(100*time.Millisecond), len(asks.failures))
}

// fault is what happens to three replicas, or their etcd, while sidecars go on.
type fault struct {
	what string
	run  func(*fleet, []*replicaProcess, *servers.Etcd)
}

func TestReplicasBehaveAsOne(t *testing.T) {
	t.Parallel()
	behaveAsOne(t,
		fault{"all replicas rolled one by one", func(_ *fleet, all []*replicaProcess, _ *servers.Etcd) { roll(all, syscall.SIGTERM) }},
		fault{"all replicas killed one by one", func(_ *fleet, all []*replicaProcess, _ *servers.Etcd) { roll(all, syscall.SIGKILL) }},
		fault{"a selection applied to one", applied},
		fault{"two of three killed, for longer than their leases", twoOfThree},
	)
}

func TestReplicasBehaveAsOneWhenTheirLeasesEnd(t *testing.T) {
	t.Parallel()
	behaveAsOne(t,
		fault{"one stopped with SIGSTOP, for longer than its leases", standsStill},
		fault{"etcd killed, for longer than the leases", withoutEtcd},
	)
}

func TestReplicasBehaveAsOneWhenAllWereGone(t *testing.T) {
	t.Parallel()
	behaveAsOne(t, fault{"all killed, for longer than their leases", allOfThem})
}

// behaveAsOne has sidecars of four apps look each other up all the time, and holds every
// lookup to find all instances, while replicas and etcd come and go.
func behaveAsOne(t *testing.T, faults ...fault) {
	t.Helper()
	retryIfStalled(t, func(t *testing.T, wrong func(format string, args ...any)) { goThrough(t, wrong, faults) })
}

func goThrough(t *testing.T, wrong func(format string, args ...any), faults []fault) {
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	var replicas []*replicaProcess
	for _, name := range []string{"r1", "r2", "r3"} {
		p := newReplica(t, "west", name, etcd.Addr(), "")
		p.rejoinAfterOutage = "100ms"
		p.start()
		replicas = append(replicas, p)
	}
	f := startFleet(t, replicas)
	agree(t, replicas, f.apps)
	awaitSettled(t, etcd, len(replicas))
	for _, fault := range faults {
		begin := time.Now()
		fault.run(f, replicas, etcd)
		agree(t, replicas, f.apps)
		lookups, failed := f.told(wrong)
		t.Logf("%s: %d lookups by %d sidecars in %s, %d failed", fault.what, lookups, len(f.callers), time.Since(begin).Round(100*time.Millisecond), failed)
	}
}

// overLeases is longer than a lease of these replicas.
const overLeases = 8 * time.Second

func roll(all []*replicaProcess, sig syscall.Signal) {
	for _, p := range all {
		p.end(sig)
		time.Sleep(500 * time.Millisecond) // as a rollout takes its time
		p.start()
	}
}

func applied(_ *fleet, all []*replicaProcess, _ *servers.Etcd) {
	all[1].apply("apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: orders}\nspec: {endpoints: [{app: checkout}, {app: billing}, {app: stock}]}\n")
}

func twoOfThree(f *fleet, all []*replicaProcess, _ *servers.Etcd) {
	all[0].end(syscall.SIGKILL)
	all[2].end(syscall.SIGKILL)
	time.Sleep(overLeases)
	all[0].start()
	all[2].start()
}

// standsStill has a replica stopped that goes on as if nothing had been. Meanwhile nobody
// can tell it from one that is dead, so its instances may be missed.
func standsStill(f *fleet, all []*replicaProcess, _ *servers.Etcd) {
	for _, c := range f.callers {
		c.watch(false)
	}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := all[1].cmd.Process.Signal(sig); err != nil {
			f.t.Fatal(err)
		}
		if sig == syscall.SIGSTOP {
			time.Sleep(overLeases)
		}
	}
	agree(f.t, all, f.apps)
	f.whole()
}

// allOfThem has nobody left but the sidecars who knows what runs.
func allOfThem(f *fleet, all []*replicaProcess, etcd *servers.Etcd) {
	for _, p := range all {
		p.end(syscall.SIGKILL)
	}
	time.Sleep(overLeases)
	for _, p := range all {
		p.rejoinAfterOutage = "" // as long as a real one waits
		p.start()
	}
	awaitSettled(f.t, etcd, len(all))
	agree(f.t, all, f.apps)
	time.Sleep(time.Second) // for sidecars to have the views that were held back
}

func withoutEtcd(f *fleet, all []*replicaProcess, etcd *servers.Etcd) {
	if err := etcd.Kill(); err != nil {
		f.t.Fatal(err)
	}
	time.Sleep(overLeases)
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	if err := etcd.Start(ctx); err != nil {
		f.t.Fatal(err)
	}
	back := time.Now()
	late := sidecarAt(f.t, all, catalog.App{Namespace: "shop", ID: "late"}, 50100)
	serverstest.Await(f.t, "a sidecar that comes after etcd's return is in all views", func() bool {
		return !slices.ContainsFunc(all, func(p *replicaProcess) bool { return !strings.Contains(p.view(f.apps[0]), "127.0.0.1:50100") })
	})
	f.t.Logf("what registered after etcd's return was known to all replicas %s after it", time.Since(back).Round(time.Millisecond))
	if err := late.Close(); err != nil {
		f.t.Error(err)
	}
}
