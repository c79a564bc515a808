package console_test

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/consoletest"
	"github.com/isthmus-mesh/isthmus/tests/console/browser"
)

// The apps of a shop that has calls.
var (
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	cart     = catalog.App{Namespace: "shop", ID: "cart"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	ledger   = catalog.App{Namespace: "bank", ID: "ledger"}
	wallet   = catalog.App{Namespace: "bank", ID: "wallet"}
)

// reporter is the stream of a sidecar, which tells of calls.
type reporter struct {
	t      *testing.T
	app    catalog.App
	stream grpc.BidiStreamingClient[v1alpha1.WatchRequest, v1alpha1.WatchResponse]
}

// sidecar opens the stream of an app's sidecar, which ends with the test.
func (c *cluster) sidecar(app catalog.App, address string) *reporter {
	c.t.Helper()
	conn := c.connect(app)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := v1alpha1.NewResolverClient(conn).Watch(ctx)
	if err == nil {
		err = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: &v1alpha1.Hello{
			App: wire.App(app), Version: "1.0", Runtime: "daprd 1.18.0", Instance: &v1alpha1.Instance{Id: app.ID + "-1", Address: address},
		}}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	var read sync.WaitGroup
	read.Go(func() {
		for _, err := stream.Recv(); err == nil; _, err = stream.Recv() {
		}
	})
	c.t.Cleanup(func() { cancel(); read.Wait(); conn.Close() })
	return &reporter{c.t, app, stream}
}

// made is calls as a sidecar tells of them.
func made(callee catalog.App, cluster string, took time.Duration, good, failed int) *v1alpha1.MadeCalls {
	var c traffic.Counter
	for i := range good {
		c.Add(traffic.OK, took*time.Duration(50+i%100)/100)
	}
	for range failed {
		c.Add(traffic.CutOff, took/2)
	}
	counts := c.Read()
	m := &v1alpha1.MadeCalls{Callee: wire.App(callee), Cluster: cluster, Traffic: counts.Wire()}
	if failed > 0 {
		m.Code = "Unavailable"
	}
	return m
}

func (r *reporter) tell(m *v1alpha1.CallReport) {
	r.t.Helper()
	if err := r.stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Calls{Calls: m}}); err != nil {
		r.t.Fatal(err)
	}
}

// shopping is a world whose sidecars tell of calls: checkout's and cart's, and those of wallet, which
// nothing lets in.
type shopping struct {
	*world
	checkout, cart, orders *reporter
}

func newShopping(t *testing.T) *shopping {
	w := newWorld(t, 34)
	instance := func(app catalog.App, third byte) *catalog.AppInstance {
		return &catalog.AppInstance{Namespace: app.Namespace, Name: app.ID + "-0", App: app.ID, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, third, 1}), 50002)}
	}
	export := func(app catalog.App) *catalog.AppExport {
		return &catalog.AppExport{App: app, Allow: []catalog.Allow{{Cluster: "west"}}}
	}
	w.east.apply(instance(orders, 1), instance(ledger, 2), export(orders), export(ledger))
	w.north.apply(instance(orders, 3), export(orders))
	w.west.apply(
		&catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{
			{App: orders, Routes: []catalog.RouteSpec{{Cluster: "local", Weight: 90}, {Cluster: "north", Weight: 10}}}, {App: ledger},
		}},
		&catalog.AppEndpoints{App: cart, Endpoints: []catalog.Endpoint{{App: orders, Routes: []catalog.RouteSpec{{Cluster: "east", Weight: 100}}}}, Actors: []catalog.ActorEndpoint{{Type: "Basket"}}},
	)
	for _, c := range []*cluster{w.east, w.north} {
		w.west.hears(c, "connected")
	}
	s := &shopping{world: w}
	s.checkout, s.cart, s.orders = w.west.sidecar(checkout, "127.0.0.1:50011"), w.west.sidecar(cart, "127.0.0.1:50012"), w.west.sidecar(orders, "127.0.0.1:50013")
	return s
}

// second tells of the calls of a second or so.
func (s *shopping) second(failing bool) {
	good, failed := 9, 0
	if failing {
		good, failed = 2, 7
	}
	s.checkout.tell(&v1alpha1.CallReport{Made: []*v1alpha1.MadeCalls{
		made(orders, "west", 12*time.Millisecond, 27, 0), made(orders, "north", 40*time.Millisecond, 3, 0), made(ledger, "east", 90*time.Millisecond, good, failed),
	}})
	s.cart.tell(&v1alpha1.CallReport{Made: []*v1alpha1.MadeCalls{made(orders, "east", 30*time.Millisecond, 60, 0)}})
	s.orders.tell(&v1alpha1.CallReport{Calls: []*v1alpha1.CallCount{{Caller: wire.App(wallet), Cluster: catalog.LocalCluster, Refused: 2}}})
}

// calling tells of calls that go well, changes a selection, and tells of calls that fail until these
// are counted: that is whole slots of ten seconds.
func (s *shopping) calling() {
	s.t.Helper()
	for range 3 {
		s.second(false)
		time.Sleep(time.Second)
	}
	s.west.apply(&catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{
		{App: orders, Routes: []catalog.RouteSpec{{Cluster: "local", Weight: 90}, {Cluster: "north", Weight: 10}}}, {App: ledger, Routes: []catalog.RouteSpec{{Cluster: "east", Weight: 100}}},
	}})
	s.west.within("calls of checkout to ledger fail", func() bool {
		s.second(true)
		time.Sleep(time.Second)
		failing := false
		stream, err := v1alpha1.NewInventoryClient(s.west.conn).Traffic(s.t.Context(), &v1alpha1.TrafficRequest{Caller: wire.App(checkout), Callee: wire.App(ledger)})
		err = receive(stream, err, func(m *v1alpha1.TrafficResponse) {
			for _, e := range m.GetEdges() {
				failing = failing || e.GetSuccess() < .5
			}
		})
		return err == nil && failing
	})
}

// TestCallsShow on the overview, with those that fail first, and on the map.
func TestCallsShow(t *testing.T) {
	s := newShopping(t)
	if text := s.page("/").Text(); !strings.Contains(text, "No calls in the last minute") {
		t.Errorf("without a call the overview says %s", text)
	}
	s.calling()
	overview := s.page("/")
	s.hasTexts(overview, "shop/checkout to bank/ledger in cluster east", "of", "calls in the last minute", "AppEndpoints shop/checkout was changed", "calls/s,", "Who calls whom")
	if links := overview.All("aria-label", "explain"); len(links) == 0 || links[0].Attr("href") != "/explain?from=shop%2Fcheckout&to=bank%2Fledger" {
		t.Errorf("calls that fail lead to %v", links)
	}
	flows := map[string]string{}
	for _, a := range s.page("/map").All("class", "flow") {
		if titles := a.Elements("title"); len(titles) > 0 {
			way, _, _ := strings.Cut(titles[0].Text(), ":")
			flows[way] = a.Attr("class")[len("flow w0 "):]
		}
	}
	for way, want := range map[string]string{
		"shop/checkout to shop/orders in west": "good", "shop/checkout to shop/orders in north": "good", "shop/checkout to bank/ledger in east": "bad", "bank/wallet to shop/orders in west": "bad",
	} {
		if flows[way] != want {
			t.Errorf("%s is drawn as %q, want %q; there are %v", way, flows[way], want, flows)
		}
	}
	s.tellsOfApps()
	s.weighs()
	s.finds()
	s.builds()
	s.pictures("/", "/map", "/map?over=5m&zoom=100", "/apps/shop/checkout?over=1m", "/apps/shop/orders", "/plan?delete=AppEndpoints/shop/checkout", "/search?q=orders", "/events", "/build?app=shop/cart&to=bank/ledger&cluster=east")
}

// tellsOfApps looks at the pages of apps: calls in tables and charts, with the change in the midst of them.
func (s *shopping) tellsOfApps() {
	s.t.Helper()
	page := s.page("/apps/shop/checkout?over=1m")
	s.hasTexts(page, "Calls failing now", "AppEndpoints shop/checkout was changed", "Calls are counted by app and cluster")
	rows, _ := page.Table("Its calls: ")
	got := map[string]string{}
	for _, row := range rows {
		got[row[0].Text()+" in "+row[1].Text()] = row[9].Text() + " of " + row[10].Text()
	}
	if got["shop/orders in west"] != "90 % of 90 %" || got["shop/orders in north"] != "10 % of 10 %" || got["bank/ledger in east"] != "100 % of 100 %" {
		s.t.Errorf("the shares of checkout's calls are %v", got)
	}
	charts := page.All("class", "chart")
	if len(charts) != 2 {
		s.t.Fatalf("%d charts of checkout, which nobody calls", len(charts))
	}
	for _, c := range charts {
		if marks := c.All("class", "change"); len(marks) == 0 || !strings.Contains(marks[len(marks)-1].Text(), "AppEndpoints shop/checkout: revision ") {
			s.t.Errorf("%s has no mark of the change", c.Text())
		}
	}
	if bad := charts[0].All("class", "bad"); !strings.Contains(charts[0].Text(), "fail") || bad[0].Attr("d") == "" {
		s.t.Errorf("no calls fail in %s", charts[0].Text())
	}
	callers, _ := s.page("/apps/shop/orders").Table("Calls to it: ")
	var texts []string
	for _, row := range callers {
		texts = append(texts, strings.TrimSpace(row[0].Text()+" to "+row[2].Text()+": "+row[4].Text()+" "+row[9].Text()))
	}
	slices.Sort(texts)
	if want := []string{
		"bank/wallet to west: 0 % denied: nothing lets this caller in", "shop/cart to east: 100 %", "shop/checkout to north: 100 %", "shop/checkout to west: 100 %",
	}; !slices.Equal(texts, want) {
		s.t.Errorf("the callers of orders are %q, want %q", texts, want)
	}
	if status := s.get("/apps/shop/orders?over=2h").Status; status != 400 {
		s.t.Errorf("a time that is not kept is answered with %d", status)
	}
}

// weighs plans changes, whose pages tell which calls they would move.
func (s *shopping) weighs() {
	s.t.Helper()
	p := s.try(&catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{{App: orders, Routes: []catalog.RouteSpec{{Cluster: "local", Weight: 90}, {Cluster: "north", Weight: 10}}}}},
		&catalog.AppEndpoints{App: cart, Endpoints: []catalog.Endpoint{{App: orders, Routes: []catalog.RouteSpec{{Cluster: "north", Weight: 100}}}}})
	moves := p.page.All("id", "moves")
	if len(moves) != 1 || !strings.Contains(moves[0].Text(), "calls/s would fail and ") || !strings.Contains(moves[0].Text(), "calls/s would go elsewhere") {
		s.t.Fatalf("what the plan would move is %v in %s", moves, p.page.Text())
	}
	s.hasTexts(p.page, "shop/checkout to bank/ledger · ", "calls/s would fail: ", "calls/s would go to north instead of east")
	for _, class := range []string{"add", "del"} {
		if len(p.page.All("class", class)) == 0 {
			s.t.Errorf("no line of the difference is of the class %s", class)
		}
	}
	for _, picture := range p.page.All("class", "map") {
		var heads []string
		for _, head := range picture.All("class", "head") {
			heads = append(heads, head.Text())
		}
		if want := []string{"west", "east (connected)", "north (connected)"}; !slices.Equal(heads, want) {
			s.t.Errorf("a map of the plan has the clusters %q, want %q", heads, want)
		}
	}
}

// finds searches everything, and opens an event that was found.
func (s *shopping) finds() {
	s.t.Helper()
	s.hasTexts(s.page("/search?q=orders"), "Apps 1", "shop/orders")
	s.hasTexts(s.page("/search?q=checkout"), "AppEndpoints shop/checkout", "calls fail")
	s.hasTexts(s.page("/search?q=nort"), "Clusters 1", "Cluster north")
	s.hasTexts(s.page("/search?q=no+such+thing"), "Nothing is called so")
	for _, a := range s.page("/search?q=ledger").Elements("a") {
		if strings.Contains(a.Text(), "calls fail") {
			event := s.page(a.Attr("href"))
			s.hasTexts(event, "calls-failed", "Explain the call", "Within a minute of it", "objects written")
			s.pictures(a.Attr("href"))
			return
		}
	}
	s.t.Error("no event is found of the calls to ledger that fail")
}

// builds makes objects by the form, which come to a plan.
func (s *shopping) builds() {
	s.t.Helper()
	selection := s.page("/build?kind=AppEndpoints&app=shop/cart&to=bank/ledger&to=bank/ledger&cluster=east&cluster=north&weight=3&weight=1")
	form := selection.Form("/plan")
	if text := form.Get("text"); !strings.Contains(text, "app: orders") || !strings.Contains(text, "type: Basket") || !strings.Contains(text, "{cluster: east, weight: 3}") || !strings.Contains(text, "{cluster: north}") {
		s.t.Fatalf("the form makes\n%s", text)
	}
	s.hasTexts(s.post("/plan", form), "What would change", "shop/cart", "bank/ledger", "Apply exactly this")
	export := s.page("/build?kind=AppExport&app=shop/orders&to=shop/*&cluster=east").Form("/plan")
	if text := export.Get("text"); !strings.Contains(text, "kind: AppExport") || !strings.Contains(text, "{cluster: east, namespace: shop}") {
		s.t.Fatalf("the form makes\n%s", text)
	}
	s.hasTexts(s.post("/plan", export), "AppExport shop/orders: created")
	for _, wrong := range []string{"/build?app=cart&to=bank/ledger", "/build?app=shop/cart&to=ledger", "/build?app=shop/cart&to=bank/ledger&cluster=east&weight=much", "/build?kind=Cluster"} {
		if page := s.get(wrong); page.Status != 400 {
			s.t.Errorf("%s is answered with %d", wrong, page.Status)
		}
	}
}

func (w *world) hasTexts(page *consoletest.Page, texts ...string) {
	w.t.Helper()
	shown := page.Text()
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			w.t.Errorf("the page does not show %q; it shows %s", text, shown)
		}
	}
}

// pictures keeps how pages look on a screen and on a telephone, where somebody wants to see that.
func (w *world) pictures(paths ...string) {
	w.t.Helper()
	if os.Getenv("ISTHMUS_ARTEFACTS") == "" {
		return
	}
	p := browser.Start(w.t, browser.Options{}).Page(w.t)
	p.Open(w.west.entry())
	p.Await("Overview")
	for _, path := range paths {
		p.Open("http://" + w.browser.Address() + path)
		for _, look := range []struct {
			name   string
			width  int64
			scheme string
		}{{"screen", 1440, "light"}, {"phone", 360, "light"}, {"dark", 1440, "dark"}} {
			p.Prefer("prefers-color-scheme", look.scheme)
			p.Viewport(look.width, 900)
			for _, v := range p.Axe() {
				w.t.Errorf("%s, %s: %s", path, look.name, v)
			}
			if wide := p.Overflow(); len(wide) > 0 {
				w.t.Errorf("%s, %s: it scrolls sideways: %v", path, look.name, wide)
			}
			p.Screenshot(strings.NewReplacer("/", "_", "?", "_", "&", "_").Replace(path) + "-" + look.name)
		}
	}
}
