package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/console/browser"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// mesh is three clusters with real sidecars. West's console is looked at.
type mesh struct {
	*sandbox.Sandbox
	t                 *testing.T
	west, east, north *sandbox.Cluster
	sidecars          map[string]*sandbox.Sidecar // by cluster and app-id, such as "west/orders"
}

// lapse is how long leases last here: faults are to be seen soon.
const lapse = 2 * time.Second

// newMesh starts the clusters, each with the settings that are said, and has them know each other.
func newMesh(t *testing.T, west map[string]any) *mesh {
	t.Helper()
	programstest.World(t, "daprd", "sentry", "isthmus", "chromium")
	s, err := sandbox.New(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &mesh{Sandbox: s, t: t, sidecars: map[string]*sandbox.Sidecar{}}
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	ctx := meshtest.Within(t, meshtest.Patience)
	for _, c := range []struct {
		name     string
		into     **sandbox.Cluster
		settings map[string]any
		apps     []string
	}{{"west", &m.west, west, []string{"checkout", "cart", "orders"}}, {"east", &m.east, nil, []string{"orders", "ledger"}}, {"north", &m.north, nil, []string{"orders"}}} {
		if *c.into, err = s.Cluster(ctx, sandbox.ClusterOptions{Name: c.name, Authority: authority, Settings: c.settings}); err != nil {
			t.Fatal(err)
		}
		for _, id := range c.apps {
			if m.sidecars[c.name+"/"+id], err = (*c.into).Sidecar(ctx, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: id}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.apply(m.east, meshtest.Cluster("west", m.west.Gateway), meshtest.Export("shop", "orders", "west"), meshtest.Export("shop", "ledger", "west"))
	m.apply(m.north, meshtest.Cluster("west", m.west.Gateway), meshtest.Export("shop", "orders", "west"))
	const atOnce = "  rampUp: 0s\n" // shares are shown, and no lease that lapses on a busy machine is to change them
	m.apply(m.west, meshtest.ClusterThatLapses(lapse, "east", m.east.Gateway)+atOnce, meshtest.ClusterThatLapses(lapse, "north", m.north.Gateway)+atOnce,
		meshtest.Export("shop", "orders", "east"),
		meshtest.Selection("shop", "checkout", "app: orders, routes: [{cluster: local, weight: 90}, {cluster: north, weight: 10}]", "app: ledger"),
		meshtest.Selection("shop", "cart", "app: orders, routes: [{cluster: east}]"))
	m.settled()
	return m
}

// settled waits until west hears both others and calls of its apps lead somewhere.
func (m *mesh) settled() {
	m.t.Helper()
	meshtest.Eventually(m.t, meshtest.Patience, func() error {
		for _, lookup := range [][2]string{{"shop/checkout", "orders"}, {"shop/checkout", "ledger"}, {"shop/cart", "orders"}} {
			if out, err := m.isthmus(m.west, "", "resolve", "--from", lookup[0], lookup[1]); err != nil {
				return fmt.Errorf("%s asks for %s: %w: %s", lookup[0], lookup[1], err, out)
			}
		}
		out, err := m.isthmus(m.west, "", "status", "--exit-code")
		if err != nil {
			return errors.New(out)
		}
		return nil
	})
}

// isthmus runs the command line against a cluster, and returns all that it prints.
func (m *mesh) isthmus(c *sandbox.Cluster, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(m.t.Context(), m.binary(), args...)
	cmd.Env = append(os.Environ(), c.CommandLine()...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (m *mesh) binary() string {
	m.t.Helper()
	return programstest.Path(m.t, "isthmus")
}

// apply writes objects.
func (m *mesh) apply(c *sandbox.Cluster, objects ...string) {
	m.t.Helper()
	if out, err := m.isthmus(c, strings.Join(objects, "---\n"), "apply", "-f", "-"); err != nil {
		m.t.Fatalf("isthmus apply in %s: %v\n%s", c.Name, err, out)
	}
}

// call makes a call from an app of west to another app.
func (m *mesh) call(from, to string) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), meshtest.Attempt)
	defer cancel()
	_, err := m.sidecars["west/"+from].Invoke(ctx, to, "hello", nil)
	return err
}

// console starts "isthmus console" against a cluster, and returns the URL by which one enters once.
func (m *mesh) console(c *sandbox.Cluster, args ...string) string {
	m.t.Helper()
	ctx := meshtest.Within(m.t, meshtest.Patience)
	console, err := c.Console(ctx, args...)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Logf("log of %s:\n%s", console.Name(), console.Tail(15))
		}
	})
	url, err := console.URL(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	return url
}

// open starts a console for a cluster and enters it in a page. It returns where the console is.
func (m *mesh) open(p *browser.Page, c *sandbox.Cluster, args ...string) string {
	m.t.Helper()
	url := m.console(c, args...)
	if status := p.Open(url); status != 200 {
		m.t.Fatalf("%s: status %d", url, status)
	}
	p.Await("Overview")
	at, _, _ := strings.Cut(url, "/enter")
	return at
}
