package console_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// mostPage is how many bytes a page may have.
const mostPage = 80_000

// TestPagesStaySmall with 800 apps, of which some call a hundred others each.
func TestPagesStaySmall(t *testing.T) {
	const namespaces, each, callers, callees = 20, 40, 12, 100
	w := newWorld(t, 80)
	app := func(i int) catalog.App {
		return catalog.App{Namespace: fmt.Sprint("team-", i/each%namespaces), ID: fmt.Sprint("service-", i%each)}
	}
	var objects []catalog.Object
	for i := range namespaces * each {
		s := &catalog.AppEndpoints{App: app(i)}
		for n := range 4 {
			s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: app(i + 1 + n*37)})
		}
		objects = append(objects, s)
	}
	for some := range slices.Chunk(objects, 200) {
		w.west.apply(some...)
	}
	var sidecars []*reporter
	for i := range callers {
		sidecars = append(sidecars, w.west.sidecar(app(i), fmt.Sprint("127.0.0.1:", 51000+i)))
	}
	w.west.within("calls are counted", func() bool {
		for i, s := range sidecars {
			m := &v1alpha1.CallReport{}
			for n := range callees {
				m.Made = append(m.Made, made(app(i+n*19+1), []string{"west", "east", "north"}[n%3], time.Duration(n+1)*time.Millisecond, n+1, n%10/9))
			}
			s.tell(m)
		}
		time.Sleep(time.Second)
		edges := uint32(0)
		stream, err := v1alpha1.NewInventoryClient(w.west.conn).Traffic(t.Context(), &v1alpha1.TrafficRequest{Most: 1, Caller: wire.App(app(callers - 1))})
		return receive(stream, err, func(m *v1alpha1.TrafficResponse) { edges += m.GetMatched() }) == nil && edges > callees/2
	})
	for _, path := range []string{
		"/", "/map", "/map?namespace=team-0", "/map?app=team-0/service-3&steps=2", "/map?app=team-0/service-3", "/apps/team-0/service-3", "/apps/team-0/service-20?over=1m",
		"/plan?delete=AppEndpoints/team-0/service-3", "/search?q=service", "/events", "/build", "/explain", "/apps", "/calls", "/sidecars", "/objects",
	} {
		began := time.Now()
		size, _, err := w.browser.Fetch(t.Context(), path)
		t.Logf("%s: %d bytes in %s", path, size, time.Since(began).Round(time.Millisecond))
		if err != nil || size > mostPage {
			t.Errorf("%s has %d bytes, %v", path, size, err)
		}
	}
}
