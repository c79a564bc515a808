package objects

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestASelectionThatWasNeverGoodOpensNothing restarts, as it were, over a store whose
// only version of a selection has a mistake.
func TestASelectionThatWasNeverGoodOpensNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "checkout.yaml")
	write := func(spec string) {
		t.Helper()
		text := "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: checkout}\nspec: " + spec + "\n"
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	const bad, good = "{endpoint: [{app: ledger}]}", "{endpoints: [{app: ledger}]}"
	write(bad)
	store, err := file.Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	top := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}, quiet)
	background(t, top.Run)
	feed := NewFeed(store, top, quiet)
	background(t, feed.Run)
	if _, err := top.Ready().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	outcome := func(want, when string) {
		t.Helper()
		checkout, orders := catalog.App{Namespace: "shop", ID: "checkout"}, catalog.App{Namespace: "shop", ID: "orders"}
		var got string
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if got = top.Resolve(checkout, orders).Outcome.String(); got == want {
				return
			}
		}
		t.Fatalf("%s: checkout asks for orders: %s, want %s", when, got, want)
	}
	outcome("denied", "the selection was refused from the start")
	write(good)
	outcome("denied", "it was mended, and does not hold orders")
	write("{endpoints: [{app: orders}]}")
	outcome("unavailable", "it holds orders, which does not run")
	write(bad)
	time.Sleep(200 * time.Millisecond) // longer than the store takes to see it
	outcome("unavailable", "it turned bad, and its last good version stands")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	outcome("not found", "it was deleted")

	// The same again, but deleted rather than mended.
	write(bad)
	other := NewFeed(store, topologyOf(t), quiet)
	background(t, other.Run)
	top = other.topology
	outcome("denied", "refused from the start")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	outcome("not found", "deleted while it was refused")
}

func topologyOf(t *testing.T) *topology.Topology {
	top := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}, quiet)
	background(t, top.Run)
	return top
}
