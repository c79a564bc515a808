package catalog_test

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// TestActorsAreOfOneNamespace has callers named like one that may, on both sides of a call, by every
// way to write a namespace in an ActorType.
func TestActorsAreOfOneNamespace(t *testing.T) {
	const (
		selected = "add it to spec.actors"
		allowed  = "add it to spec.allow"
		other    = "evil/checkout is not of namespace shop"
		theirs   = "is an app of another cluster"
		bridged  = "only apps of a type's own namespace"
	)
	for _, c := range []struct {
		caller    string
		own       bool   // by the trust domain
		namespace string // in the ActorType's allow
		lead      string // why west's bridge refuses; empty: it takes the call
		admit     string // why east's does, on the word of west's
	}{
		{"shop/checkout", true, "", "", ""},
		{"shop/checkout", true, "*", "", ""},
		{"shop/checkout", true, "shop", "", ""},
		{"shop/checkout", true, "evil", allowed, allowed},
		{"shop/mallory", true, "", selected, allowed},
		{"shop/mallory", true, "shop", selected, allowed},
		{"evil/checkout", true, "", other, bridged},
		{"evil/checkout", true, "*", other, bridged},
		{"evil/checkout", true, "shop", other, bridged},
		{"evil/checkout", true, "evil", other, bridged},
		{"shop/checkout", false, "", theirs, ""},
		{"shop/checkout", false, "shop", theirs, ""},
		{"evil/checkout", false, "", theirs, bridged},
		{"evil/checkout", false, "evil", theirs, bridged},
	} {
		caller, err := catalog.ParseApp(c.caller)
		if err != nil {
			t.Fatal(err)
		}
		allow := []catalog.Allow{{Cluster: "west", Namespace: c.namespace, App: "checkout"}}
		west := &catalog.ActorView{Namespace: "shop", Cluster: "west", Imports: []catalog.ActorImport{{Type: "Cart", Owner: "east", Callers: []string{"checkout"}, Allow: allow}}}
		east := &catalog.ActorView{Namespace: "shop", Cluster: "east", Owned: []catalog.OwnedActors{{Type: "Cart", Allow: allow}}, Clusters: []catalog.ActorCluster{{Name: "west"}}}
		_, lead := west.Lead(c.own, catalog.Principal{Domain: "public", App: caller}, "Cart")
		admit := east.Admit(catalog.Principal{Domain: "public", App: catalog.BridgeApp("shop", "west")}, caller, "Cart")
		for _, side := range []struct {
			name string
			got  *catalog.Refusal
			want string
		}{{"its own bridge", lead, c.lead}, {"the owner's bridge", admit, c.admit}} {
			got := ""
			if side.got != nil {
				got = side.got.Error()
			}
			if (got == "") != (side.want == "") || !strings.Contains(got, side.want) || got != "" && side.got.Outcome != catalog.Denied {
				t.Errorf("%s, own: %t, allowed in namespace %q: %s says %q, want %q", c.caller, c.own, c.namespace, side.name, got, side.want)
			}
		}
	}
}
