package zone

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestAQueryWaitsForAClusterThatIsAsked, for each name that leads there, until it has answered or should
// have.
func TestAQueryWaitsForAClusterThatIsAsked(t *testing.T) {
	for what, answer := range map[string][]topology.PeerExport{"it answers": {has("shop/orders", 1)}, "it exports the app no more": {has("shop/other", 1)}, "it never answers": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, west)
			need, err := w.top.Need(t.Context(), "east")
			if err != nil {
				t.Fatal(err)
			}
			defer need.Close()
			named := has("shop/orders", 1)
			named.Named = true
			w.apply(full(reaches("east", "203.0.113.7:15443")), runs("shop/checkout", "10.0.0.9:50002"), says("east", named))
			w.apply(put(selects("shop/checkout", calls("shop/orders"))))
			names := []string{"orders.shop.isthmus.internal. A", "orders.shop.east.isthmus.internal. A", "_dapr._tcp.orders.shop.isthmus.internal. SRV", "0.orders.shop.east.isthmus.internal. AAAA"}
			got := make(chan string, len(names))
			for _, row := range names {
				name, typ, _ := strings.Cut(row, " ")
				a := asking{from: "10.0.0.9", name: name, typ: typ, over: transport.TCP}
				packet, err := a.message().Pack()
				if err != nil {
					t.Fatal(err)
				}
				if response, later := w.Answer(query(a, packet), nil); !later {
					t.Errorf("%s: %x at once", row, response)
				}
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				if rcode := w.Wait(gone, query(a, packet), nil)[3] & 15; rcode != 2 {
					t.Errorf("%s: a client that does not wait gets code %d; want SERVFAIL", row, rcode)
				}
				go func() { got <- show(w.ask(a)) }()
			}
			if answer != nil {
				time.Sleep(50 * time.Millisecond)
				w.apply(topology.Change{Peers: []topology.PeerChange{{Cluster: "east", Full: true, Put: answer, Lease: topology.Fresh}}})
			}
			for range names {
				if text := <-got; !strings.HasPrefix(text, "N") || strings.Contains(text, "203.0.113.7") != (what == "it answers" && strings.Contains(text, " A ")) {
					t.Errorf("got %s", text)
				}
			}
		})
	}
}
