package answers

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestAppsComeInPages(t *testing.T) {
	objects := []catalog.Object{&catalog.AppExport{App: catalog.App{Namespace: "bank", ID: "app-1"}}}
	for i := range 1200 { // more than one message has
		objects = append(objects, &catalog.AppExport{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%04d", i)}})
	}
	client := inventoryOf(t, objects...)
	after := func(id string) *v1alpha1.App { return &v1alpha1.App{Namespace: "shop", Id: id} }
	for _, c := range []struct {
		req  *v1alpha1.AppsRequest
		want string
	}{
		{&v1alpha1.AppsRequest{}, "1201: 1201 from bank/app-1 to shop/app-1199"},
		{&v1alpha1.AppsRequest{Most: 50}, "1201: 50 from bank/app-1 to shop/app-0048"},
		{&v1alpha1.AppsRequest{Most: 50, After: after("app-0048")}, "1201: 50 from shop/app-0049 to shop/app-0098"},
		{&v1alpha1.AppsRequest{Most: 50, After: after("app-1189x")}, "1201: 10 from shop/app-1190 to shop/app-1199"},
		{&v1alpha1.AppsRequest{Most: 50, After: after("app-1199")}, "1201: 0"},
		{&v1alpha1.AppsRequest{Search: "pp-11", Most: 3}, "100: 3 from shop/app-1100 to shop/app-1102"},
		{&v1alpha1.AppsRequest{Search: "k/a"}, "1: 1 from bank/app-1 to bank/app-1"},
		{&v1alpha1.AppsRequest{Search: "app-1", Namespace: "bank", Id: "app-1"}, "1: 1 from bank/app-1 to bank/app-1"},
		{&v1alpha1.AppsRequest{Search: "nobody"}, "0: 0"},
	} {
		var apps []*v1alpha1.AppState
		var matched uint32
		stream, err := client.Apps(t.Context(), c.req)
		err = all(stream, err, func(m *v1alpha1.AppsResponse) {
			apps, matched = append(apps, m.GetApps()...), matched+m.GetMatched()
		})
		got := fmt.Sprintf("%d: %d", matched, len(apps))
		if len(apps) > 0 {
			got += fmt.Sprintf(" from %s to %s", wire.AppOf(apps[0].GetApp()), wire.AppOf(apps[len(apps)-1].GetApp()))
		}
		if err != nil || got != c.want {
			t.Errorf("%v: got %s (%v), want %s", c.req, got, err, c.want)
		}
	}
}

func TestAppsOfOthersThatAreOnlyNamedMayBeLeftOut(t *testing.T) {
	shop := func(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }
	var named []topology.PeerExport
	for i := range 1200 {
		named = append(named, topology.PeerExport{App: shop(fmt.Sprintf("app-%04d", i)), Allow: []catalog.Allow{{Cluster: "west"}}, Ready: 1, Named: true})
	}
	client := inventoryWith(t,
		topology.Change{Objects: &topology.ObjectChange{Full: true, Put: []catalog.Object{
			&catalog.Cluster{Name: "east"}, &catalog.AppEndpoints{App: shop("checkout"), Endpoints: []catalog.Endpoint{{App: shop("app-0007")}}},
		}}},
		topology.Change{Peers: []topology.PeerChange{{Cluster: "east", Full: true, Lease: topology.Fresh, Put: named}}})
	for _, c := range []struct {
		req  *v1alpha1.AppsRequest
		want string
	}{
		{&v1alpha1.AppsRequest{}, "1201 of 1201, 0 left out"},
		{&v1alpha1.AppsRequest{WithoutNamed: true}, "2 of 2, 1199 left out"},
		{&v1alpha1.AppsRequest{WithoutNamed: true, Search: "app-00"}, "1 of 1, 99 left out"},
		{&v1alpha1.AppsRequest{WithoutNamed: true, Search: "app-1"}, "0 of 0, 200 left out"},
		{&v1alpha1.AppsRequest{Search: "app-1", Most: 3}, "3 of 200, 0 left out"},
	} {
		var apps, matched, left int
		stream, err := client.Apps(t.Context(), c.req)
		err = all(stream, err, func(m *v1alpha1.AppsResponse) {
			apps, matched, left = apps+len(m.GetApps()), matched+int(m.GetMatched()), left+int(m.GetLeftOut())
		})
		if got := fmt.Sprintf("%d of %d, %d left out", apps, matched, left); err != nil || got != c.want {
			t.Errorf("%v: got %s (%v), want %s", c.req, got, err, c.want)
		}
	}
}
