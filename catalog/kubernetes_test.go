package catalog

import (
	"strings"
	"testing"
)

func TestNamesWithoutACluster(t *testing.T) {
	const d, k = Domain(DefaultDomain), Kubernetes("cluster.local")
	orders := App{"shop", "orders"}
	for host, want := range map[string]struct{ caller, kubernetes bool }{
		"orders.shop.isthmus.internal":               {caller: true},
		"ORDERS.Shop.Isthmus.INTERNAL":               {caller: true},
		"orders.shop.isthmus.internal.":              {caller: true},
		"orders.shop.isthmus.internal..":             {},
		"orders.shop.east.isthmus.internal":          {},
		"orders.isthmus.internal":                    {},
		"orders..isthmus.internal":                   {},
		".shop.isthmus.internal":                     {},
		"isthmus.internal":                           {},
		"orders.shopisthmus.internal":                {},
		"orders.shop.isthmus.internal.example":       {},
		"orders-dapr.shop.svc.cluster.local":         {kubernetes: true},
		"Orders-Dapr.shop.SVC.cluster.local.":        {kubernetes: true},
		"orders.shop.svc.cluster.local":              {}, // a service of the user's own
		"-dapr.shop.svc.cluster.local":               {},
		"orders-dapr.svc.cluster.local":              {},
		"orders-dapr.shop.pod.cluster.local":         {},
		"a.orders-dapr.shop.svc.cluster.local":       {},
		"orders-dapr.shop.svc.cluster.local.example": {},
		"orders-dapr.shop.svc.east.local":            {},
		"":                                           {},
	} {
		if a, ok := d.ParseCallerHost(host); ok != want.caller || ok && a != orders {
			t.Errorf("%q: %v, %v, want a name of every caller's: %v", host, a, ok, want.caller)
		}
		if a, ok := k.ParseHost(host); ok != want.kubernetes || ok && a != orders {
			t.Errorf("%q: %v, %v, want a name of Kubernetes: %v", host, a, ok, want.kubernetes)
		}
	}
	if host := k.Host(orders); host != "orders-dapr.shop.svc.cluster.local" {
		t.Errorf("host name %q", host)
	}
	if a, ok := Kubernetes("").ParseHost("orders-dapr.shop.svc."); ok {
		t.Errorf("no domain has the app %v", a)
	}
}

func TestDomainsOfKubernetesAndIsthmusAreApart(t *testing.T) {
	for _, c := range []struct {
		kubernetes Kubernetes
		domain     Domain
		ok         bool
	}{
		{"cluster.local", DefaultDomain, true},
		{"cluster.local", "isthmus.cluster.local", true},
		{"cluster.local", "svc.cluster.local", false},
		{"cluster.local", "cluster.local", false},
		{"cluster.local", "local", false},
		{"cluster.local", "mesh.svc.cluster.local", false},
		{"", DefaultDomain, false},
		{"Cluster.local", DefaultDomain, false},
		{"svc.cluster.local", DefaultDomain, false},
	} {
		if err := CheckKubernetes(c.kubernetes, c.domain); (err == nil) != c.ok {
			t.Errorf("%q beside %q: %v, want allowed: %v", c.kubernetes, c.domain, err, c.ok)
		}
	}
}

// stockTable exports shop/orders and shop/invoices from east.
func stockTable(k Kubernetes) *GatewayTable {
	var edits []Edit[*Backend]
	for _, a := range []App{{"shop", "orders"}, {"shop", "invoices"}} {
		edits = append(edits, Edit[*Backend]{App: a, Value: &Backend{App: a, Instances: []string{"10.0.0.1:50002"}}})
	}
	return &GatewayTable{Domain: DefaultDomain, Kubernetes: k, Cluster: "east", Backends: NewTable(edits)}
}

func TestAGatewayTakesTheNamesThatStockSidecarsSend(t *testing.T) {
	with, without := stockTable("cluster.local"), stockTable("")
	for _, c := range []struct {
		host          string
		with, without bool
	}{
		{"orders.shop.east.isthmus.internal", true, true},
		{"3.orders.shop.east.isthmus.internal", true, true},
		{"orders.shop.isthmus.internal", true, true},
		{"Orders.Shop.isthmus.internal.", true, true},
		{"orders-dapr.shop.svc.cluster.local", true, false},
		{"orders.shop.west.isthmus.internal", false, false},    // another cluster's
		{"3.orders.shop.isthmus.internal", false, false},       // shards are of a cluster
		{"ledger.shop.isthmus.internal", false, false},         // not exported
		{"ledger-dapr.shop.svc.cluster.local", false, false},   //
		{"ledger.shop.east.isthmus.internal", false, false},    //
		{"orders.finance.isthmus.internal", false, false},      //
		{"orders-dapr.shop.isthmus.internal", false, false},    //
		{"orders.shop.svc.cluster.local", false, false},        // no service of Dapr's
		{"orders-dapr.shop.svc.cluster.local.", true, false},   //
		{"_resolver.east.isthmus.internal", false, false},      // the gateway's own business
		{"kubernetes.default.svc.cluster.local", false, false}, //
	} {
		if _, _, ok := with.Lookup(c.host); ok != c.with {
			t.Errorf("%q: taken: %v, want %v", c.host, ok, c.with)
		}
		if _, _, ok := without.Lookup(c.host); ok != c.without {
			t.Errorf("%q without Kubernetes: taken: %v, want %v", c.host, ok, c.without)
		}
	}
	for _, host := range []string{"orders.shop.east.isthmus.internal", "orders.shop.isthmus.internal", "orders-dapr.shop.svc.cluster.local"} {
		if allocations := testing.AllocsPerRun(100, func() { with.Lookup(host) }); allocations != 0 {
			t.Errorf("%q takes %v allocations", host, allocations)
		}
	}
}

// An accepted name is that of an exported app, in one of the known forms.
func FuzzGatewayLookup(f *testing.F) {
	for _, host := range []string{
		"orders.shop.east.isthmus.internal", "1.orders.shop.east.isthmus.internal", "i0a1b2c3d.orders.shop.east.isthmus.internal", "orders.shop.isthmus.internal.",
		"orders-dapr.shop.svc.cluster.local", "ORDERS-dapr.shop.svc.cluster.local", "_resolver.east.isthmus.internal", "", "..",
	} {
		f.Add(host)
	}
	table := stockTable("cluster.local")
	f.Fuzz(func(t *testing.T, host string) {
		b, part, ok := table.Lookup(host)
		if !ok {
			if b != nil {
				t.Errorf("%q is refused with an app", host)
			}
			return
		}
		if exported, ok := table.Backends.Get(b.App); !ok || exported != b {
			t.Fatalf("%q leads to %v, which is not exported", host, b.App)
		}
		forms := []string{table.Domain.Host(b.App, "east"), string(b.App.ID + "." + b.App.Namespace + "." + DefaultDomain), table.Kubernetes.Host(b.App)}
		if n, ok := part.Shard(); ok {
			forms = []string{table.Domain.ShardHost(n, b.App, "east")}
		} else if token, ok := part.Instance(); ok {
			forms = []string{table.Domain.InstanceHost(token, b.App, "east")}
		}
		lower := strings.ToLower(strings.TrimSuffix(host, "."))
		for _, form := range forms {
			if form == lower {
				return
			}
		}
		t.Errorf("%q leads to %v, part %d", host, b.App, part)
	})
}

func BenchmarkGatewayLookup(b *testing.B) {
	table := stockTable("cluster.local")
	for _, host := range []string{"orders.shop.east.isthmus.internal", "1.orders.shop.east.isthmus.internal", "orders.shop.isthmus.internal", "orders-dapr.shop.svc.cluster.local"} {
		b.Run(host, func(b *testing.B) {
			for b.Loop() {
				table.Lookup(host)
			}
		})
	}
}
