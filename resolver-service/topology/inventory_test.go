package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestTheInventoryHasWhatIsKnownOfEachApp(t *testing.T) {
	top := running(t, Config{Cluster: "west", Domain: catalog.DefaultDomain})
	at := func(id, address string, draining bool) catalog.Instance {
		return catalog.Instance{ID: id, App: app(id), Address: netip.MustParseAddrPort(address), Draining: draining, Zone: "a"}
	}
	for _, c := range []Change{
		{Objects: &ObjectChange{Full: true, Put: []catalog.Object{
			&catalog.Cluster{Name: "east"},
			&catalog.AppEndpoints{App: app("checkout"), Endpoints: []catalog.Endpoint{{App: app("orders")}, {App: app("ledger")}}},
			&catalog.AppExport{App: app("orders"), Allow: []catalog.Allow{{Cluster: "north"}, {Cluster: "east", App: "x"}, {Cluster: "east", App: "y"}}},
			&catalog.AppExport{App: app("cart"), Allow: []catalog.Allow{{Cluster: "*"}, {Cluster: "east"}}},
		}}},
		{Instances: []InstanceChange{{Source: "stream", Rank: Live, Put: []catalog.Instance{at("orders", "10.0.0.1:1", false), at("checkout", "10.0.0.2:1", true)}}}},
		{Instances: []InstanceChange{{Source: "static", Put: []catalog.Instance{at("other", "10.0.0.1:1", false)}}}},
		{Peers: []PeerChange{{Cluster: "east", Full: true, Lease: Fresh, Put: []PeerExport{{App: app("ledger"), Ready: 3, Allow: []catalog.Allow{{Cluster: "west"}}}}}}},
		{Peers: []PeerChange{{Cluster: "east", Lease: Expired}}},
	} {
		top.must(t, c)
	}
	names, err := top.Inventory().Apps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states, err := top.Inventory().AppStates(t.Context(), append(names, app("nobody")))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range states {
		line := fmt.Sprintf("%s ready=%d draining=%d callers=%d selection=%t to=%v", s.App.ID, s.Ready, s.Draining, s.Callers, s.Selection, s.ExportedTo)
		for _, i := range s.Instances {
			line += fmt.Sprintf(" %s/%s@%s,%s,%t,%s", i.Source, i.ID, i.Address, i.Zone, i.Draining, i.TakenBy.ID)
		}
		for _, i := range s.Imports {
			line += fmt.Sprintf(" %s=%d,%t", i.Cluster, i.Ready, i.Stale)
		}
		got = append(got, line)
	}
	want := `cart ready=0 draining=0 callers=0 selection=false to=[*]
checkout ready=0 draining=1 callers=0 selection=true to=[] stream/checkout@10.0.0.2:1,a,true,
ledger ready=0 draining=0 callers=1 selection=false to=[] east=3,true
orders ready=1 draining=0 callers=1 selection=false to=[east north] stream/orders@10.0.0.1:1,a,false,
other ready=0 draining=0 callers=0 selection=false to=[] static/other@10.0.0.1:1,a,false,orders`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// TestTheInventoryHasOffers, whether there are more of them or of the apps that are asked for.
func TestTheInventoryHasOffers(t *testing.T) {
	top := running(t, Config{Cluster: "west", Domain: catalog.DefaultDomain})
	named := func(ids ...string) (all []PeerExport) {
		for _, id := range ids {
			all = append(all, PeerExport{App: app(id), Allow: []catalog.Allow{{Cluster: "west"}}, Ready: 1, Named: true})
		}
		return all
	}
	top.must(t, full(reaches("east", "10.9.0.1:15443"), reaches("north", "10.9.0.2:15443"), selects("checkout", calls("orders"))))
	top.must(t, says("east", named("orders", "ledger", "mail", "stock")...))
	top.must(t, says("north", named("mail")...))
	in := top.Inventory()
	text := func(apps []catalog.App, err error) string {
		var names []string
		for _, a := range apps {
			names = append(names, a.ID)
		}
		slices.Sort(names)
		return fmt.Sprint(names, err)
	}
	for got, want := range map[string]string{
		text(in.Apps(t.Context())):             "[checkout orders] <nil>",
		text(in.Offered(t.Context(), "")):      "[ledger mail stock] <nil>",
		text(in.Offered(t.Context(), "north")): "[mail] <nil>",
		text(in.Offered(t.Context(), "south")): "[] <nil>",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, asked := range [][]catalog.App{{app("mail")}, {app("checkout"), app("ledger"), app("mail"), app("nobody"), app("orders"), app("stock")}} {
		states, err := in.AppStates(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]string{}
		for _, s := range states {
			for _, i := range s.Imports {
				by[s.App.ID] += fmt.Sprintf("%s=%d,%t ", i.Cluster, i.Ready, i.Named)
			}
		}
		if by["mail"] != "east=1,true north=1,true " || len(asked) > 1 && (len(states) != 5 || by["ledger"] != "east=1,true " || by["orders"] != "east=1,true ") {
			t.Errorf("%d states of %d apps: %v", len(states), len(asked), by)
		}
	}
}
