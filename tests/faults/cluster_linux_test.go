package faults

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// plan says what a cluster is to be.
type plan struct {
	name     string
	replicas int    // of its resolver service, over one etcd; 0: one, with a store embedded in it
	store    string // one of stores; "": as the replicas say
	dir      string // of its files; "": a temporary one
	// Paths of isthmus and daprd; "": today's. With another gateway, the second replica is the cluster's only
	// gateway, and the first the only one that sidecars know.
	service, gateway, sidecar string
}

// cluster is one cluster in a place of its own. Its connections to others come from one
// address, and its gateway listens at two others, so that either direction can be cut.
type cluster struct {
	*sandbox.Cluster
	plan
	place    *network.Place
	box      *sandbox.Sandbox
	lab      *lab
	etcd     *servers.Etcd      // nil without one
	keeper   server             // of the store, if it has one beside that
	services []*sandbox.Service // the replicas of the resolver service, the first that of Cluster
	network  netip.Prefix       // all addresses of the place
	gateways []netip.Addr
	// addresses are those of the gRPC services of replicas, where there are several.
	addresses []string
	sidecars  map[string]*sandbox.Sidecar // by app-id and number: "orders 1"
}

const gatewayPort = 15443

func newCluster(t *testing.T, l *lab, p plan, number int) *cluster {
	t.Helper()
	c := &cluster{
		plan: p, lab: l, gateways: []netip.Addr{address(number, 11), address(number, 12)},
		network: netip.PrefixFrom(address(number, 0), 24), sidecars: map[string]*sandbox.Sidecar{},
	}
	var err error
	if c.place, err = l.Place(address(number, 1), c.gateways[0], c.gateways[1]); err != nil {
		t.Fatal(err)
	}
	dir := cmp.Or(p.dir, t.TempDir())
	if keep := os.Getenv("ISTHMUS_FAULTS_DIR"); keep != "" {
		dir = filepath.Join(keep, p.name)
	}
	if c.box, err = sandbox.NewIn(c.place, dir, quiet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range c.servers() {
			if err := s.Kill(); err != nil {
				t.Error(err)
			}
		}
		if err := c.box.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			c.logs(t)
		}
	})
	return c
}

// start starts the cluster's Sentry and its service.
func (c *cluster) start(ctx context.Context) error {
	options := sandbox.ClusterOptions{Name: c.name, Authority: c.lab.authority, Gateway: c.gatewayOf(1), Program: c.service}
	var err error
	if c.replicas > 0 {
		if c.etcd, err = servers.StartEtcd(ctx, c.box.Dir(), servers.EtcdOptions{Place: c.place}); err != nil {
			return err
		}
		for range c.replicas {
			port, err := sandbox.FreePort()
			if err != nil {
				return err
			}
			c.addresses = append(c.addresses, fmt.Sprintf("127.0.0.1:%d", port))
		}
		c.store = cmp.Or(c.store, "etcd")
		options.Resolver, options.Settings = c.addresses[0], c.replica(1)
	}
	if options.Store, c.keeper, err = stores[cmp.Or(c.store, "embedded")].start(ctx, c); err != nil {
		return err
	}
	if c.Cluster, err = c.box.Cluster(ctx, options); err != nil {
		return err
	}
	c.services = append(c.services, c.Service)
	for number := 2; number <= c.replicas; number++ {
		s, err := c.box.Service(ctx, sandbox.ServiceOptions{
			Name: fmt.Sprintf("isthmus-%s-%d", c.name, number), Cluster: c.name, Sentry: c.Sentry,
			Store: options.Store, Resolver: c.addresses[number-1], Gateway: c.gatewayOf(number), Settings: c.replica(number), Program: cmp.Or(c.gateway, c.service),
		})
		if err != nil {
			return err
		}
		c.services = append(c.services, s)
	}
	return nil
}

// servers are what keeps the cluster's objects and instances beside its services.
func (c *cluster) servers() (all []server) {
	if c.etcd != nil {
		all = append(all, c.etcd)
	}
	if c.keeper != nil {
		all = append(all, c.keeper)
	}
	return all
}

func (c *cluster) inEtcd() map[string]any {
	return map[string]any{"etcd": map[string]any{"endpoints": []string{c.etcd.URL()}}}
}

// replica is what makes a service one of several. Its gateway lets go of connections soon.
func (c *cluster) replica(number int) map[string]any {
	replicas := map[string]any{"name": fmt.Sprintf("%s-%d", c.name, number)}
	if c.service == "" && c.gateway == "" { // older releases don't know the key
		replicas["addresses"] = c.addresses
	}
	return map[string]any{
		"replicas":  replicas,
		"instances": c.inEtcd(),
		"gateway":   map[string]any{"drainTimeout": "2s"},
	}
}

// gatewayOf is where the gateway of a replica listens: the only replica at both addresses
// of the cluster, of several the first two at one each, and the others where nobody looks.
func (c *cluster) gatewayOf(number int) string {
	switch {
	case c.gateway != "" && number == 1:
		return sandbox.NoGateway
	case c.replicas <= 1, c.gateway != "":
		return fmt.Sprintf("0.0.0.0:%d", gatewayPort)
	case number <= len(c.gateways):
		return fmt.Sprintf("%s:%d", c.gateways[number-1], gatewayPort)
	default:
		return ""
	}
}

// has says how many instances of an app a cluster is to have.
type has struct {
	in    *cluster
	id    string
	count int
}

// namespace is that of every app.
const namespace = "shop"

func app(id string) catalog.App { return catalog.App{Namespace: namespace, ID: id} }

// run starts instances, each with a sidecar.
func (l *lab) run(t *testing.T, wanted ...has) {
	t.Helper()
	type one struct {
		*cluster
		id     string
		number int
	}
	var all []one
	for _, w := range wanted {
		for i := range w.count {
			all = append(all, one{w.in, w.id, i + 1})
		}
	}
	var mu sync.Mutex
	together(t, all, func(o one) error {
		s, err := o.Sidecar(meshtest.Within(t, meshtest.Patience), sandbox.SidecarOptions{
			App: app(o.id), GRPC: true, Instance: fmt.Sprint(o.number), Program: o.sidecar, Component: map[string]any{"resolver": o.resolvers()},
		})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			o.sidecars[fmt.Sprintf("%s %d", o.id, o.number)] = s
		}
		return err
	})
}

// resolvers are the addresses of the replicas of the cluster's resolver service.
func (c *cluster) resolvers() string {
	if c.gateway != "" {
		return c.Resolver
	}
	all := make([]string, len(c.services))
	for i, s := range c.services {
		all[i] = s.Resolver
	}
	return strings.Join(all, ", ")
}

// had is what the apps of all clusters have had of a method.
func (l *lab) had(method string) (all sandbox.Begun) {
	for _, c := range l.clusters() {
		for _, s := range c.sidecars {
			b := s.Behind.Begun(method)
			if b.Count > 0 && (all.Count == 0 || b.First.Before(all.First)) {
				all.First = b.First
			}
			all.Count += b.Count
		}
	}
	return all
}

// processes are all of the cluster but its store.
func (c *cluster) processes() []*sandbox.Process {
	all := []*sandbox.Process{c.Sentry.Process}
	for _, s := range c.services {
		all = append(all, s.Process)
	}
	for _, s := range c.sidecars {
		all = append(all, s.Process)
	}
	return all
}

// kill ends every process of the cluster with SIGKILL.
func (c *cluster) kill() error {
	all := c.processes()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { errs[i] = p.Kill() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// restart starts a killed cluster again.
func (c *cluster) restart(t *testing.T) {
	t.Helper()
	first := 1 + len(c.services)
	for _, p := range c.processes()[:first] {
		if err := p.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	together(t, c.processes()[first:], func(p *sandbox.Process) error { return p.Restart(meshtest.Within(t, meshtest.Patience)) })
}

// isthmus runs the command line against the cluster and returns what it prints.
func (c *cluster) isthmus(ctx context.Context, stdin string, args ...string) (string, error) {
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), c.CommandLine()...)
	cmd.Stdin = strings.NewReader(stdin)
	return c.output(cmd)
}

// output runs a command in the cluster's place and returns what it prints.
func (c *cluster) output(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := c.place.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s %s in %s: %w\n%s%s", filepath.Base(cmd.Path), cmd.Args[1], c.name, err, &out, &errs)
	}
	return out.String(), nil
}

// apply writes objects; it returns once lookups in the cluster's service follow them.
func (c *cluster) apply(t *testing.T, objects ...string) {
	t.Helper()
	if _, err := c.isthmus(meshtest.Within(t, meshtest.Patience), strings.Join(objects, "---\n"), "apply", "--in-parts", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// logs shows how the logs of the cluster end.
func (c *cluster) logs(t *testing.T) {
	if c.Cluster == nil {
		return
	}
	for _, p := range c.processes() {
		t.Logf("log of %s in %s:\n%s", p.Name(), c.name, p.Tail(25))
	}
}
