package resolverservice

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
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
			got += fmt.Sprintf(" from %s to %s", catalogApp(apps[0].GetApp()), catalogApp(apps[len(apps)-1].GetApp()))
		}
		if err != nil || got != c.want {
			t.Errorf("%v: got %s (%v), want %s", c.req, got, err, c.want)
		}
	}
}

func TestSidecarsAreAskedForByPage(t *testing.T) {
	west := start(t, configOf(t, "west", nil), nil)
	for _, app := range []catalog.App{checkout, orders, orders} {
		west.sidecar(app, fmt.Sprint("10.0.0.1:", 50000+len(west.sidecarsOf(&v1alpha1.SidecarsRequest{}, nil))))
	}
	var first, second, third uint32
	page := west.sidecarsOf(&v1alpha1.SidecarsRequest{Search: "p/ord", Most: 1}, &first)
	next := west.sidecarsOf(&v1alpha1.SidecarsRequest{Search: "p/ord", Most: 1, After: page[0].GetPosition()}, &second)
	last := west.sidecarsOf(&v1alpha1.SidecarsRequest{Search: "p/ord", Most: 1, After: next[0].GetPosition()}, &third)
	if len(page) != 1 || len(next) != 1 || len(last) != 0 || first != 2 || second != 2 || third != 2 || page[0].GetAddress() != "10.0.0.1:50001" || next[0].GetAddress() != "10.0.0.1:50002" {
		t.Errorf("%v of %d, then %v of %d, then %v of %d", page, first, next, second, last, third)
	}
	stream, err := v1alpha1.NewInventoryClient(west.connect(identity.CLIApp(""))).Sidecars(t.Context(), &v1alpha1.SidecarsRequest{After: "nowhere"})
	if err := all(stream, err, func(*v1alpha1.SidecarsResponse) {}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("after what is no position: %v", err)
	}
}

// sidecarsOf asks for sidecars, and for how many there are.
func (r *running) sidecarsOf(req *v1alpha1.SidecarsRequest, matched *uint32) (page []*v1alpha1.SidecarState) {
	r.t.Helper()
	stream, err := v1alpha1.NewInventoryClient(r.connect(identity.CLIApp(""))).Sidecars(r.t.Context(), req)
	err = all(stream, err, func(m *v1alpha1.SidecarsResponse) {
		page = append(page, m.GetSidecars()...)
		if matched != nil {
			*matched += m.GetMatched()
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return page
}
