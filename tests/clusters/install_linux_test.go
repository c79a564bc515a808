package clusters

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// callees are the apps that are called, by the cluster that each is in.
var callees = map[string]string{"west": "orders", "east": "invoices"}

// shop has an app in each cluster that calls one of its own, and one of the other.
func (m *mesh) shop(t *testing.T) {
	t.Helper()
	for _, c := range m.all() {
		c.apply(t, meshtest.Export("shop", callees[c.name], m.other(c).name))
		c.apply(t, meshtest.Selection("shop", "checkout", "app: orders", "app: invoices"))
		c.deploy(t, callees[c.name], 2)
		c.deploy(t, "checkout", 1)
	}
	for _, c := range m.all() {
		c.available(t, callees[c.name], "checkout")
	}
}

// TestTwoClusters has Isthmus installed, upgraded, and a root changed, while apps of both call each other.
func TestTwoClusters(t *testing.T) {
	need(t)
	now := release{repository(t), "0.0.2"}
	first := now
	if *before != "" {
		first = release{*before, "0.0.1"}
	}
	m := newMesh(t)
	m.load(t, first)
	m.install(t, first)
	m.shop(t)
	t.Run("installed", func(t *testing.T) {
		m.callers(t)
		m.west.injected(t, "orders", first)
	})
	t.Run("upgraded", func(t *testing.T) {
		if *before == "" {
			t.Skip("-before names no directory with the release to upgrade from")
		}
		m.load(t, now)
		m.upgrades(t, first, now)
	})
	t.Run("asked by people", m.operators)
	t.Run("with another root", m.rotates)
}

// injected checks that each pod of an app has the sidecar of a release, and the Configuration.
func (c *cluster) injected(t *testing.T, id string, of release) {
	t.Helper()
	image := "ghcr.io/isthmus-mesh/daprd-isthmus:" + of.version
	var pods struct {
		Items []struct {
			Metadata struct{ DeletionTimestamp string }
			Spec     struct {
				Containers []struct {
					Name, Image string
					Args        []string
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(c.kubectl(t, "get pods -n shop -o json -l app="+id)), &pods); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range pods.Items {
		if p.Metadata.DeletionTimestamp != "" {
			continue
		}
		for _, container := range p.Spec.Containers {
			if container.Name != "daprd" {
				continue
			}
			found++
			at := slices.Index(container.Args, "--config")
			if container.Image != image || at < 0 || container.Args[at+1] != "isthmus" {
				t.Errorf("the sidecar of %s is %s %q", id, container.Image, container.Args)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d pods of %s have a sidecar, want 2", found, id)
	}
}
