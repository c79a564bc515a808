package zone

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
)

// TestAClusterThatIsNotHeardMayHaveTheApp: the caller's selection leads to whichever clusters
// export the app, and of this one that is not known. So its name there is not missing.
func TestAClusterThatIsNotHeardMayHaveTheApp(t *testing.T) {
	w := newWorld(t, west)
	w.apply(
		full(reaches("east", "203.0.113.7:15443"), reaches("north", "203.0.113.8:15443"), reaches("west", "203.0.113.9:15443"),
			selects("shop/checkout", calls("shop/invoices"), calls("shop/here", via("local", 0, 1)), calls("shop/there", via("east", 0, 1)))),
		runs("shop/checkout", "10.0.0.9:50002"), says("north", has("shop/other", 1)))
	nothing := "NOERROR aa\n" + soaLine
	inEast := nothing + "error: 22 No Reachable Authority: unavailable: no route to shop/invoices is ready: east (nothing heard from its resolver service yet)"
	all := nothing + "error: 22 No Reachable Authority: unavailable: no route to shop/invoices is ready: " +
		"west (no ready instance of shop/invoices), east (nothing heard from its resolver service yet)"
	noRoute := func(a, cluster string) string {
		return "NXDOMAIN aa\n" + soaLine + "error: 0 Other: not found: the caller's view has no route to shop/" + a + " in cluster " + cluster
	}
	w.check("10.0.0.9", []row{
		{"invoices.shop.isthmus.internal. A +", all},
		{"_dapr._tcp.invoices.shop.isthmus.internal. SRV +", all},
		{"invoices.shop.east.isthmus.internal. A +", inEast},
		{"invoices.shop.east.isthmus.internal. AAAA", nothing},
		{"invoices.shop.EAST.isthmus.internal. HTTPS +", inEast},
		{"7.invoices.shop.east.isthmus.internal. A +", inEast},
		{"10-3-0-1.invoices.shop.east.isthmus.internal. A +", inEast},
		{"_dapr._tcp.invoices.shop.east.isthmus.internal. SRV +", inEast},
		{"_dapr._tcp.10-3-0-1.invoices.shop.east.isthmus.internal. SRV +", inEast},
		{"_tcp.invoices.shop.east.isthmus.internal. A", nothing},
		{"x.invoices.shop.east.isthmus.internal. A", "NXDOMAIN aa\n" + soaLine}, // no name of an instance
		{"there.shop.east.isthmus.internal. A +", strings.ReplaceAll(inEast, "invoices", "there")},
		{"10-3-0-1.there.shop.east.isthmus.internal. A +", strings.ReplaceAll(inEast, "invoices", "there")},
		{"invoices.shop.north.isthmus.internal. A +", noRoute("invoices", "north")},
		{"invoices.shop.mars.isthmus.internal. A +", noRoute("invoices", "mars")},
		{"here.shop.east.isthmus.internal. A +", noRoute("here", "east")},
		{"checkout.shop.east.isthmus.internal. A +", noRoute("checkout", "east")},
	})
	text := func(name string) string {
		var all []string
		for _, rr := range w.ask(asking{from: "10.0.0.9", name: name, typ: "TXT", over: transport.TCP}).Answer {
			all = append(all, strings.Join(rr.(*dns.TXT).Txt, ""))
		}
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	east := "route=east priority 1 weight 1 ready 0: nothing heard from its resolver service yet"
	if got := text("invoices.shop.isthmus.internal."); !strings.Contains(got, east) || !strings.Contains(got, "route=west") || !strings.Contains(got, "reason=no route to shop/invoices is ready: west") {
		t.Errorf("got\n%s", got)
	}
	if got := text("invoices.shop.east.isthmus.internal."); !strings.Contains(got, east) || strings.Contains(got, "west") {
		t.Errorf("got\n%s", got)
	}
	w.apply(runs("shop/invoices", "10.0.0.1:50002"))
	if got := text("invoices.shop.isthmus.internal."); !strings.Contains(got, east) || !strings.Contains(got, "outcome=ok") || !strings.Contains(got, "address=10.0.0.1:50002") {
		t.Errorf("got\n%s", got)
	}
	w.apply(says("east", has("shop/invoices", 1)))
	w.check("10.0.0.9", []row{
		{"invoices.shop.east.isthmus.internal. A", "NOERROR aa\ninvoices.shop.east.isthmus.internal. 30 IN A 203.0.113.7"},
		{"there.shop.east.isthmus.internal. A +", nothing + "error: 22 No Reachable Authority: unavailable: no route to shop/there is ready: east (does not export shop/there to the caller: no AppExport there lets it in)"},
	})
}

// TestWhatClustersAreHeardToHaveIsNeverMissing asks while clusters are heard: what each has is
// there by then, or not known, and never missing.
func TestWhatClustersAreHeardToHaveIsNeverMissing(t *testing.T) {
	w := newWorld(t, west)
	const clusters = 100
	objects := []catalog.Object{selects("shop/checkout", calls("shop/orders"))}
	for i := range clusters {
		objects = append(objects, reaches(fmt.Sprint("c", i), "203.0.113.7:15443"))
	}
	w.apply(full(objects...))
	var heard, asked sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		asked.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				got := w.ask(asking{as: "shop/checkout", name: fmt.Sprintf("orders.shop.c%d.isthmus.internal.", i%clusters), typ: "A"})
				if got.Rcode != dns.RcodeSuccess {
					t.Errorf("got %v", got)
					return
				}
			}
		})
	}
	heard.Go(func() {
		for i := range clusters {
			w.apply(says(fmt.Sprint("c", i), has("shop/orders", 1)))
		}
	})
	heard.Wait()
	close(stop)
	asked.Wait()
}
