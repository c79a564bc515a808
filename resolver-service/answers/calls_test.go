package answers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestWhatIsSaidOfCallersIsWhatTheGuardDoes has guards of random objects judge callers of one trust
// domain that all clusters share, and of one for each. What lets a caller in is named if and only if
// the guard lets it in; for the others it is said what they lack.
func TestWhatIsSaidOfCallersIsWhatTheGuardDoes(t *testing.T) {
	var apps []catalog.App
	for _, namespace := range []string{"shop", "tenant"} {
		for _, id := range []string{"a", "b", "c"} {
			apps = append(apps, catalog.App{Namespace: namespace, ID: id})
		}
	}
	counts := map[string]int{}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		one := func(of ...string) string { return of[r.IntN(len(of))] }
		own, east, north := "public", "", "public" // one domain for all, which is not said of east
		if seed%2 == 0 {
			own, east, north = "west.example", "east.example", "north.example"
		}
		top := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: seed%3 == 0, SelectionIsConsent: seed%5 == 0}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = top.Run(ctx) }()
		objects := []catalog.Object{
			&catalog.Cluster{Name: "east", Trust: catalog.Trust{AppDomain: east}}, &catalog.Cluster{Name: "north", Trust: catalog.Trust{AppDomain: north}},
		}
		instances := topology.InstanceChange{Source: "kubernetes", Rank: topology.Scheduled}
		for i, a := range apps {
			if r.IntN(2) == 0 {
				s := &catalog.AppEndpoints{App: a}
				for _, callee := range r.Perm(len(apps))[:r.IntN(4)] {
					s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: apps[callee]})
				}
				objects = append(objects, s)
			}
			if r.IntN(2) == 0 {
				e := &catalog.AppExport{App: a}
				for range 1 + r.IntN(2) {
					e.Allow = append(e.Allow, catalog.Allow{Cluster: one("*", "east", "north", "local"), Namespace: one("", "shop", "tenant"), App: one("", "a")})
				}
				objects = append(objects, e)
			}
			instances.Put = append(instances.Put, catalog.Instance{ID: "p", App: a, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 50002)})
		}
		if _, err := top.Apply(ctx, topology.Change{Objects: &topology.ObjectChange{Full: true, Put: objects}, Instances: []topology.InstanceChange{instances}}); err != nil {
			t.Fatal(err)
		}
		callees, domains, err := top.Inventory().Callees(ctx, apps)
		if err != nil {
			t.Fatal(err)
		}
		for i := range callees {
			c := &callees[i]
			for _, domain := range []string{own, cmp.Or(east, own), north, "elsewhere.example"} {
				for _, from := range apps {
					p := catalog.Principal{Domain: domain, App: from}
					isOwn := domain == own
					cluster, in := c.Access.Judge(isOwn, p)
					in = in || isOwn && from == c.App
					who := attribution{c, domains}
					said := who.caller(isOwn, p)
					where := fmt.Sprintf("seed %d: %s calls %s", seed, p, c.App)
					if (said.GetRule() != "") != in || (said.GetLacks() == "") != in {
						t.Fatalf("%s: let in %t, and it is said: let in by %q, lacks %q", where, in, said.GetRule(), said.GetLacks())
					}
					if cluster != "" && said.GetCluster() != cluster && from != c.App {
						t.Fatalf("%s: of %q for the guard, of %q for operators", where, cluster, said.GetCluster())
					}
					if said.GetCluster() == domain {
						t.Fatalf("%s: a trust domain is said to be a cluster", where)
					}
					if name, _, ok := strings.Cut(said.GetRule(), ","); ok && strings.HasPrefix(name, "AppEndpoints") && name != "AppEndpoints "+from.String() {
						t.Fatalf("%s: let in by %s", where, said.GetRule())
					}
					counts[fmt.Sprint(in, " as one of ", said.GetCluster())]++
				}
			}
		}
		stop()
		<-ended
	}
	for _, want := range []string{"true as one of local", "true as one of east", "true as one of north", "true as one of ", "false as one of local", "false as one of "} {
		if counts[want] == 0 {
			t.Errorf("never %s: %v", want, counts)
		}
	}
}
