package topology

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// declares is an instance that declares calls, as a source of a rank has it.
func declares(source string, rank Rank, id, instance, address, text string) Change {
	i := at(id, instance, address)
	var err error
	if i.Calls, err = catalog.ParseCalls("shop", text); err != nil {
		panic(err)
	}
	return Change{Instances: []InstanceChange{{Source: source, Rank: rank, Put: []catalog.Instance{i}}}}
}

func TestInstancesDeclareCalls(t *testing.T) {
	const pod, sidecar = "10.0.0.1:50002", "10.0.0.2:50002"
	both := Declared{Annotations: true, Sidecars: true}
	kube := func(instance, address, text string) Change {
		return declares("kubernetes", Scheduled, "checkout", instance, address, text)
	}
	own := func(text string) Change { return declares("stream", Live, "checkout", "s", sidecar, text) }
	for _, c := range []struct {
		what     string
		declared Declared
		closed   bool
		changes  []Change
		orders   string // what becomes of a lookup of orders
		guard    bool   // whether orders lets it in
		ledger   string // and of ledger
	}{
		{"nobody is asked", Declared{}, false, []Change{kube("1", pod, "orders"), own("orders")}, "ok", true, "ok"},
		{"a pod", both, false, []Change{kube("1", pod, "orders")}, "ok", true, "denied"},
		{"a sidecar where only pods count", Declared{Annotations: true}, false, []Change{own("ledger")}, "ok", true, "ok"},
		{"a sidecar where nothing is open", both, true, []Change{own("orders")}, "ok", false, "denied"},
		{"a sidecar where all is open without it", both, false, []Change{own("orders")}, "ok", true, "denied"},
		{"a pod and its sidecar", both, true, []Change{kube("1", sidecar, "orders"), own("ledger")}, "ok", true, "ok"},
		{"pods that differ", both, true, []Change{kube("1", pod, "orders"), kube("2", "10.0.0.3:50002", "ledger")}, "ok", true, "ok"},
		{"an object", both, true, []Change{kube("1", pod, "orders"), objects(selects("checkout", calls("ledger")))}, "denied", false, "ok"},
		{"a pod before a default", both, true, []Change{objects(defaults("shop", calls("ledger"))), kube("1", pod, "orders")}, "ok", true, "denied"},
		{"a default for what a sidecar declares", both, true, []Change{own("orders"), objects(defaults("shop", calls("orders")))}, "ok", true, "denied"},
		{"a default that goes", both, true, []Change{objects(defaults("shop", calls("orders"))), own("orders"), deletes(defaultKey("shop"))}, "ok", false, "denied"},
		{"a pod that declares nothing any more", both, true, []Change{kube("1", pod, "orders"), runs("checkout", "9", "10.0.0.9:50002"), {Instances: []InstanceChange{{Source: "kubernetes", Full: true}}}}, "denied", false, "denied"},
		{"a pod whose address is another's", both, true, []Change{kube("1", sidecar, "orders"), declares("stream", Live, "thief", "s", sidecar, "orders")}, "denied", false, "denied"},
	} {
		t.Run(c.what, func(t *testing.T) {
			config := west
			config.Declared, config.Open = c.declared, !c.closed
			g := NewGraph(config)
			g.Apply(full())
			for i, id := range []string{"orders", "ledger"} {
				g.Apply(runs(id, "1", fmt.Sprintf("10.0.1.%d:50002", i)))
			}
			g.accesses.keep(app("orders"), 0)
			for _, change := range c.changes {
				g.Apply(change)
			}
			for id, want := range map[string]string{"orders": c.orders, "ledger": c.ledger} {
				e, _ := g.viewOf(app("checkout")).Entries.Get(app(id))
				if got := map[bool]string{true: "ok", false: "denied"}[e != nil]; got != want {
					t.Errorf("%s: %s, want %s", id, got, want)
				}
			}
			a := g.accesses.followed[app("orders")]
			if got := a.Declared.Has(app("checkout")) || a.Undeclared.Has(app("checkout")); got != c.guard {
				t.Errorf("the guard lets it in: %t, want %t", got, c.guard)
			}
		})
	}
}

func TestADeclarationIsNamedAndStaysAsItIs(t *testing.T) {
	config := west
	config.Declared = Declared{Annotations: true, Sidecars: true}
	g := NewGraph(config)
	g.Apply(full())
	g.Apply(declares("kubernetes", Scheduled, "checkout", "a", "10.0.0.1:50002", "orders"))
	g.Apply(declares("stream", Live, "checkout", "s", "10.0.0.1:50002", "orders, ledger"))
	n := g.apps[app("checkout")]
	selection := n.selection
	var rules []string
	for i := range selection.Endpoints {
		rules = append(rules, catalog.Rule{Selection: selection, Index: int32(i)}.String())
	}
	want := []string{
		"calls in the configuration of its sidecars, shop/ledger",
		"the annotation isthmus.dev/calls of its pods, shop/orders",
	}
	if !slices.Equal(rules, want) {
		t.Errorf("got %q, want %q", rules, want)
	}
	g.Apply(declares("kubernetes", Scheduled, "checkout", "b", "10.0.0.3:50002", "orders"))
	if n.selection != selection {
		t.Error("another pod that declares the same is another selection")
	}
	g.selections.remarks = nil
	g.Apply(declares("kubernetes", Scheduled, "checkout", "d", "10.0.0.5:50002", "orders"))
	if len(g.selections.remarks) > 0 {
		t.Errorf("remarks %v on what has not changed", g.selections.remarks)
	}
	g.Apply(declares("kubernetes", Scheduled, "checkout", "c", "10.0.0.4:50002", "billing"))
	if !slices.Equal(g.selections.remarks, []remark{{app("checkout"), differing}}) {
		t.Errorf("remarks %v, want one on calls that differ", g.selections.remarks)
	}
}
