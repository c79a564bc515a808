package stock

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// port is what every sidecar and every gateway listens on: a name has no port, so callers
// dial the same one wherever the name leads.
const port = 50002

// namespace is that of every app.
const namespace = "shop"

// lab is two clusters that know each other, in a network of their own.
type lab struct {
	*network.Network
	authority  *sandbox.Authority
	west, east *cluster
}

// cluster is a Sentry and a service with its gateway, all at one address.
type cluster struct {
	*sandbox.Cluster
	lab    *lab
	name   string
	number int
	place  *network.Place
	box    *sandbox.Sandbox
	plane  *plane // nil outside of Kubernetes
	pods   int
}

// plan is what the clusters of a lab have beside what all have.
type plan struct{ west, east site }

// site is what a cluster has.
type site struct {
	listen, settings map[string]any // keys of "listen", and of isthmus.yaml
	addresses        []netip.Addr   // beside its first
	kubernetes       bool           // Kubernetes and Dapr's control plane are there
}

// newLab starts clusters without sidecars. They trust one root, and each has a Sentry.
func newLab(t *testing.T, p plan) *lab {
	t.Helper()
	needsBinaries(t)
	network.Need(t)
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{Network: network.New(1), authority: authority}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	l.west, l.east = l.cluster(t, "west", 1, p.west), l.cluster(t, "east", 2, p.east)
	for c, s := range map[*cluster]site{l.west: p.west, l.east: p.east} {
		if s.kubernetes {
			c.startPlane(t)
		}
	}
	var starting sync.WaitGroup
	starting.Go(func() { l.west.start(t, p.west) })
	starting.Go(func() { l.east.start(t, p.east) })
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	l.west.apply(t, meshtest.Cluster("east", l.east.Gateway))
	l.east.apply(t, meshtest.Cluster("west", l.west.Gateway))
	return l
}

func (l *lab) cluster(t *testing.T, name string, number int, s site) *cluster {
	t.Helper()
	c := &cluster{lab: l, name: name, number: number}
	c.place, c.box = l.at(t, append([]netip.Addr{c.address(1)}, s.addresses...)...)
	return c
}

// at makes a place with a sandbox in it.
func (l *lab) at(t *testing.T, addresses ...netip.Addr) (*network.Place, *sandbox.Sandbox) {
	t.Helper()
	place, err := l.Place(addresses...)
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.NewIn(place, t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return place, box
}

// address is one of the cluster's: 1 is its service's, from 11 on its pods have theirs.
func (c *cluster) address(n int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("10.77.%d.%d", c.number, n))
}

func (c *cluster) start(t *testing.T, s site) {
	listen := map[string]any{"dns": c.dns().String()}
	maps.Copy(listen, s.listen)
	o := sandbox.ClusterOptions{
		Name: c.name, Authority: c.lab.authority, Host: c.address(1).String(),
		Gateway: netip.AddrPortFrom(c.address(1), port).String(), Listen: listen, Settings: s.settings,
	}
	if c.plane != nil {
		c.inKubernetes(&o)
	}
	var err error
	c.Cluster, err = c.box.Cluster(meshtest.Within(t, meshtest.Patience), o)
	if err != nil {
		t.Error(err)
		return
	}
	if c.plane != nil {
		c.Resolver = c.resolver()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", c.Service.Name(), c.Service.Tail(25))
		}
	})
}

// dns is where the cluster's service answers DNS.
func (c *cluster) dns() netip.AddrPort { return netip.AddrPortFrom(c.address(1), 53) }

// isthmus runs the command line against the cluster and returns what it prints.
func (c *cluster) isthmus(ctx context.Context, stdin string, args ...string) (string, error) {
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), c.CommandLine()...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := c.place.Do(cmd.Start); err != nil {
		return "", fmt.Errorf("isthmus %s in %s: %w", args[0], c.name, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("isthmus %s in %s: %w\n%s", args[0], c.name, err, &out)
	}
	return out.String(), nil
}

// apply writes objects; it returns once lookups in the cluster's service follow them.
func (c *cluster) apply(t *testing.T, objects ...string) {
	t.Helper()
	if _, err := c.isthmus(meshtest.Within(t, meshtest.Patience), strings.Join(objects, "---\n"), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// needsBinaries fails a test when what it runs is not built, and leaves it out in a
// short run.
func needsBinaries(t *testing.T) {
	t.Helper()
	programstest.World(t, "daprd-stock", "sentry", "isthmus")
}
