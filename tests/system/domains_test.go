package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// domains is two clusters, each with a root, a Sentry and a trust domain of its own.
type domains struct {
	*mesh
	roots map[string]*sandbox.Authority
}

func twoDomains(t *testing.T) *domains {
	t.Helper()
	return twoDomainsWith(t, nil)
}

// twoDomainsWith adds to the options of each.
func twoDomainsWith(t *testing.T, more map[string]sandbox.ClusterOptions) *domains {
	t.Helper()
	needsBinaries(t)
	s, err := sandbox.New(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	d := &domains{&mesh{Sandbox: s}, map[string]*sandbox.Authority{}}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]**sandbox.Cluster{"west": &d.west, "east": &d.east} {
		if d.roots[name], err = sandbox.NewAuthority(); err != nil {
			t.Fatal(err)
		}
		o := more[name]
		o.Name, o.Authority, o.TrustDomain = name, d.roots[name], name+".example"
		*c, err = s.Cluster(meshtest.Within(t, meshtest.Patience), o)
		if err != nil {
			t.Fatal(err)
		}
	}
	d.authority = d.roots["west"]
	return d
}

// trusting is a Cluster object with the roots that count for the cluster.
func trusting(c *sandbox.Cluster, roots ...*sandbox.Authority) string {
	text := meshtest.Cluster(c.Name, c.Gateway) + "  trust:\n    domain: " + c.Name + ".example\n    roots: |\n"
	for _, r := range roots {
		text += "      " + strings.ReplaceAll(strings.TrimSpace(string(r.Anchors())), "\n", "\n      ") + "\n"
	}
	return text
}

// app is a sidecar with these trust anchors.
func (d *domains) app(t *testing.T, c *sandbox.Cluster, id string, anchors ...string) *sandbox.Sidecar {
	t.Helper()
	var text strings.Builder
	for _, name := range anchors {
		text.Write(d.roots[name].Anchors())
	}
	return d.sidecar(t, c, sandbox.SidecarOptions{
		App: catalog.App{Namespace: "shop", ID: id}, Env: map[string]string{"DAPR_TRUST_ANCHORS": text.String()},
	})
}

// peer is how a cluster's service finds another, as "isthmus status" tells.
func (d *domains) peer(t *testing.T, c *sandbox.Cluster, cluster string) (state, why string) {
	t.Helper()
	out, errs, err := d.isthmus(t, c, "", "status", "-o", "json")
	if err != nil {
		t.Fatalf("isthmus status: %v\n%s", err, errs)
	}
	var answer struct {
		Peers []struct{ Cluster, State, Error string }
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	for _, p := range answer.Peers {
		if p.Cluster == cluster {
			return p.State, p.Error
		}
	}
	return "", ""
}

// The commands of docs/how-to/trust.md make issuers below one root that two Sentrys take.
func TestIssuersBelowOneRoot(t *testing.T) {
	t.Parallel()
	needsBinaries(t)
	page, err := os.ReadFile("../../docs/how-to/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(page), "### Issuers below one root")
	_, recipe, found := strings.Cut(recipe, "```sh\n")
	if !found {
		t.Fatal("the page has no such recipe")
	}
	recipe, _, _ = strings.Cut(recipe, "```")
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", recipe)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the recipe: %v\n%s", err, out)
	}
	authority, err := sandbox.ReadAuthority(filepath.Join(dir, "root.crt"), filepath.Join(dir, "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := sandbox.New(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{Sandbox: s, authority: authority}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	ctx := meshtest.Within(t, meshtest.Patience)
	cluster := func(name string) *sandbox.Cluster {
		sentry, err := s.Sentry(ctx, sandbox.SentryOptions{Cluster: name, Authority: authority, Credentials: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Cluster(ctx, sandbox.ClusterOptions{Name: name, Authority: authority, Sentry: sentry})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	m.west, m.east = cluster("west"), cluster("east")
	m.apply(t, m.west, meshtest.Cluster("east", m.east.Gateway), selection("shop", "checkout", "app: orders"))
	m.apply(t, m.east, meshtest.Cluster("west", m.west.Gateway), export("shop", "orders", "west"))
	m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: "orders"}})
	checkout := m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: "checkout"}})
	answers(t, checkout, "orders", "east")
}

// What docs/how-to/trust.md says of clusters with an authority each.
func TestAppsOfTwoTrustDomainsCallEachOther(t *testing.T) {
	t.Parallel()
	d := twoDomains(t)
	d.apply(t, d.west, meshtest.Cluster("east", d.east.Gateway), export("shop", "prices", "east"),
		selection("shop", "checkout", "app: orders"), selection("shop", "narrow", "app: orders"))
	d.apply(t, d.east, trusting(d.west, d.roots["west"]), export("shop", "orders", "west"), selection("shop", "basket", "app: prices"))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if _, why := d.peer(t, d.west, "east"); !strings.Contains(why, "add east's root to Cluster east, spec.trust.roots") {
			return fmt.Errorf("west says of east: %q, want what to do", why)
		}
		return nil
	})
	d.apply(t, d.west, trusting(d.east, d.roots["east"]))
	for _, c := range [][2]*sandbox.Cluster{{d.west, d.east}, {d.east, d.west}} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if state, why := d.peer(t, c[0], c[1].Name); state != "connected" {
				return fmt.Errorf("%s finds %s %s: %s", c[0].Name, c[1].Name, state, why)
			}
			return nil
		})
	}

	d.app(t, d.east, "orders", "east", "west")
	d.app(t, d.west, "prices", "west", "east")
	checkout, basket := d.app(t, d.west, "checkout", "west", "east"), d.app(t, d.east, "basket", "east", "west")
	answers(t, checkout, "orders", "east")
	answers(t, basket, "prices", "west")

	// A sidecar without the other root has the address, and does not believe who is there.
	narrow := d.app(t, d.west, "narrow", "west")
	d.leadsTo(t, d.west, "shop/narrow", "orders", "east")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := narrow.Invoke(meshtest.Within(t, meshtest.Patience), "orders", "hello", untraced)
		var refused *sandbox.InvokeError
		switch {
		case err == nil:
			t.Fatal("a call went through without east's root among the caller's anchors")
		case !errors.As(err, &refused) || !strings.Contains(refused.Body, "authority"):
			return fmt.Errorf("without east's root in its anchors: %w", err)
		}
		return nil
	})

	// One root more changes nothing; the old one taken away ends what it stood for.
	next, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	d.apply(t, d.west, trusting(d.east, d.roots["east"], next))
	out, errs, err := d.isthmus(t, d.west, "", "trust")
	if err != nil || strings.Count(out, "peer root") < 2 || !strings.Contains(out, "spiffe://east.example/ns/isthmus-system/isthmus-east") {
		t.Errorf("isthmus trust: %v\n%s%s", err, out, errs)
	}
	t.Log("\n" + out)
	answers(t, checkout, "orders", "east")
	d.apply(t, d.west, trusting(d.east, next))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if state, _ := d.peer(t, d.west, "east"); state == "connected" {
			return errors.New("east is connected though its root was taken away")
		}
		return nil
	})
}
