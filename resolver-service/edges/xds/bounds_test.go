package xds

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// heap is what is in use after garbage collection, in bytes.
func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// many gives the site apps that each have an instance, and changes all of them.
func (x *site) many(apps, round int) {
	x.t.Helper()
	c := topology.InstanceChange{Source: "many", Full: true}
	for i := range apps {
		c.Put = append(c.Put, catalog.Instance{
			App: shop(fmt.Sprintf("app-%d", i)), ID: fmt.Sprint(i),
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(round), byte(i >> 8), byte(i)}), 50002),
		})
	}
	x.apply(topology.Change{Instances: []topology.InstanceChange{c}})
}

// A client that reads nothing delays nobody, costs bounded memory, and is disconnected.
func TestAClientThatStopsReading(t *testing.T) {
	t.Parallel()
	const apps, rounds = 2000, 20 // several messages of maxResponse
	selected := make([]catalog.Endpoint, apps)
	for i := range selected {
		selected[i] = endpoint(fmt.Sprintf("app-%d", i), local)
	}
	x := start(t, Settings{}, selects("checkout", selected...))
	x.many(apps, 0)

	// It gives no window back, so nothing more than the first one's bytes leaves the server.
	conn, err := grpc.NewClient("passthrough:///"+x.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(65535), grpc.WithStaticConnWindowSize(65535))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stuck, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := x.connect(t, shop("checkout"), true)
	if err := stuck.Send(&discoveryv3.DeltaDiscoveryRequest{Node: other.node, TypeUrl: endpoints.url(), ResourceNamesSubscribe: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	x.settles("the client is there", func() bool { return x.clients() == 1 })
	other.follow(endpoints, "app-7.shop")
	other.until("its first", func() bool { return len(other.have[endpoints]) == 1 })
	before := heap()
	for round := 1; round <= rounds; round++ {
		x.many(apps, round)
		want := fmt.Sprintf("0 west x1: 10.%d.0.7:50002", round)
		other.until("the change", func() bool { return strings.Join(other.endpointsOf("app-7.shop"), "") == want })
	}
	if grown := heap() - before; grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB in %d changes of %d apps", grown>>20, rounds, apps)
	}
	x.settles("it is disconnected", func() bool { return x.clients() == 1 })
}

// clients is how many streams are open.
func (x *site) clients() int {
	sum := 0
	for _, line := range strings.Split(x.metrics("isthmus_xds_clients"), "\n") {
		var n int
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			if _, err := fmt.Sscan(line[i:], &n); err == nil {
				sum += n
			}
		}
	}
	return sum
}

func (x *site) metrics(names ...string) string {
	x.t.Helper()
	text, err := testutil.CollectAndFormat(x.registry, expfmt.TypeTextPlain, names...)
	if err != nil {
		x.t.Fatal(err)
	}
	return string(text)
}

// connects is few enough for the race detector by default.
var connects = flag.Int("connects", 2000, "connections that come and go")

// Connections that come and go leave nothing behind.
func TestConnectsLeaveTheHeapFlat(t *testing.T) {
	x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
	x.runs(shop("orders"), "10.0.0.1:50002")
	connect := func(i int) {
		conn, err := grpc.NewClient("passthrough:///"+x.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		who := node(shop("checkout"))
		if i%2 == 1 { // one that has no view of its own
			who = node(shop(fmt.Sprintf("other-%d", i)))
		}
		err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: who, TypeUrl: endpoints.url(), ResourceNamesSubscribe: []string{"orders.shop", fmt.Sprintf("unknown-%d.shop", i)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range *connects / 4 {
		connect(i)
	}
	x.settles("all have gone", func() bool { return x.clients() == 0 })
	before := heap()
	for i := range *connects {
		connect(i)
	}
	x.settles("all have gone", func() bool { return x.clients() == 0 })
	var grown int64
	x.settles("the heap is flat", func() bool { grown = heap() - before; return grown < 1<<20 })
	t.Logf("%d connects: the heap grew by %d KiB", *connects, grown>>10)
	if names := x.metrics("isthmus_xds_names"); !strings.HasSuffix(strings.TrimSpace(names), " 0") {
		t.Errorf("no client is there, but: %s", names)
	}
}

// A gateway that its Cluster object names by host name has the addresses of that.
func TestAGatewayByHostName(t *testing.T) {
	x := start(t, Settings{}, cluster("east", "localhost:15443"), selects("checkout", endpoint("orders")))
	x.exports("east", shop("orders"), 1)
	c := x.connect(t, shop("checkout"), true)
	c.follow(endpoints, "orders.shop")
	c.until("the address", func() bool {
		return strings.Contains(strings.Join(c.endpointsOf("orders.shop"), ""), "127.0.0.1:15443")
	})
}

// What clients do is counted.
func TestMetrics(t *testing.T) {
	x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
	x.runs(shop("orders"), "10.0.0.1:50002")
	c := x.connect(t, shop("checkout"), true)
	c.refuse[endpoints] = "no"
	c.follow(endpoints, "orders.shop")
	c.until("endpoints", func() bool { return len(c.have[endpoints]) == 1 })
	for _, want := range []string{
		`isthmus_xds_clients{as="app",protocol="delta"} 1`, `isthmus_xds_clients{as="gateway",protocol="sotw"} 0`, "isthmus_xds_names 1",
		`isthmus_xds_responses_total{type="EDS"} 1`, `isthmus_xds_resources_total{type="EDS"} 1`, `isthmus_xds_rejections_total{type="EDS"} 1`,
	} {
		x.settles(want, func() bool {
			return strings.Contains(x.metrics("isthmus_xds_clients", "isthmus_xds_names", "isthmus_xds_responses_total", "isthmus_xds_resources_total", "isthmus_xds_rejections_total"), want)
		})
	}
}
