package gateway

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// sharded gives an app of a table its shards, as places of its instances.
func sharded(table *catalog.GatewayTable, id string, shards ...uint16) *catalog.GatewayTable {
	app := catalog.App{Namespace: "shop", ID: id}
	b, _ := table.Backends.Get(app)
	next := *table
	next.Backends = table.Backends.With(catalog.Edit[*catalog.Backend]{App: app, Value: &catalog.Backend{App: app, Instances: b.Instances, Shards: shards}})
	return &next
}

func TestAShardGoesToItsInstance(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{}, sharded(exports(1, map[string][]string{
			"orders": {tlsBackend(t, "a"), tlsBackend(t, "b"), tlsBackend(t, "c")},
		}), "orders", 2, 0, 1), with)
		for host, want := range map[string]string{
			"0." + ordersHost:                     "c",
			"1." + ordersHost:                     "a",
			"2." + ordersHost:                     "b",
			"3." + ordersHost:                     "c", // of a caller that knows more shards than there are
			"65535." + ordersHost:                 "c",
			"1.ORDERS.Shop.East.Isthmus.INTERNAL": "a",
		} {
			for range 3 {
				if got, _, err := call(t, gw.addr, host); got != want {
					t.Errorf("%s: answered by %q, %v; want %q", host, got, err, want)
				}
			}
		}
	})
}

// Callers of an instance go on elsewhere by themselves, so no other answers for it.
func TestAnInstanceByItsName(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		a, b := tlsBackend(t, "a"), tlsBackend(t, "b")
		table := exports(1, map[string][]string{"orders": {a, b}})
		app := catalog.App{Namespace: "shop", ID: "orders"}
		backend, _ := table.Backends.Get(app)
		backend.Tokens = catalog.InstanceTokens(backend.Instances)
		backend.Versioned = catalog.VersionTokens(backend.Tokens, catalog.NewLabels([]string{"2.1", "1.9"}))
		gw := serve(t, Config{}, table, with)
		for address, want := range map[string]string{a: "a", b: "b"} {
			host := table.Domain.InstanceHost(catalog.InstanceToken(address), app, table.Cluster)
			for range 3 {
				if got, _, err := call(t, gw.addr, host); got != want {
					t.Errorf("%s: answered by %q, %v; want %q", host, got, err, want)
				}
			}
		}
		token := catalog.VersionToken(backend.Tokens[0], "2.1")
		if got, _, err := call(t, gw.addr, table.Domain.InstanceHost(token, app, table.Cluster)); got != map[string]string{a: "a", b: "b"}[backend.Instances[0]] {
			t.Errorf("an instance of a version: answered by %q, %v", got, err)
		}
		token = catalog.VersionToken(backend.Tokens[0], "2.0")
		if got, _, err := call(t, gw.addr, table.Domain.InstanceHost(token, app, table.Cluster)); err == nil {
			t.Errorf("an instance of the version that it had: answered by %q", got)
		}
		if got, _, err := call(t, gw.addr, table.Domain.InstanceHost(1, app, table.Cluster)); err == nil {
			t.Errorf("an instance that is not there: answered by %q", got)
		}
	})
}

// oddShards are names that look like those of shards and are none.
func oddShards() []string {
	odd := []string{"007." + ordersHost, "65536." + ordersHost, "-1." + ordersHost, "+1." + ordersHost, "1.2." + ordersHost, "x." + ordersHost,
		"0x1." + ordersHost, "1_0." + ordersHost, "99999999999999999999." + ordersHost, "1." + peerHost, "1.secret.shop.east.isthmus.internal",
		"1.orders.shop.west.isthmus.internal", "i1." + ordersHost, "i0a1b2c3g." + ordersHost, "i0a1b2c3d4." + ordersHost}
	return odd
}

func TestANameThatIsNoShardIsRefused(t *testing.T) {
	table := sharded(exports(1, map[string][]string{"orders": {tlsBackend(t, "a"), tlsBackend(t, "b")}}), "orders", 0, 1)
	gw := serve(t, Config{Plaintext: true}, table)
	for _, host := range oddShards() {
		conn := tls.Client(dialTCP(t, gw.addr), &tls.Config{ServerName: host, InsecureSkipVerify: true})
		if err := conn.Handshake(); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("SNI %s: %v; want unrecognized name", host, err)
		}
		want := unknownName
		if strings.Contains(host, ".west.") {
			want = otherCluster
		}
		if err := check(t, grpcClient(t, gw.addr, host), "a"); err == nil || !strings.Contains(err.Error(), string(want)) {
			t.Errorf(":authority %s: %v; want %s", host, err, want)
		}
	}
	if got := gw.refused(unknownName) + gw.refused(otherCluster); got < 2*len(oddShards()) {
		t.Errorf("%d refusals counted, want at least %d", got, 2*len(oddShards()))
	}
}

func TestPlaintextIsRoutedToTheShard(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{Plaintext: true}, sharded(exports(1, map[string][]string{
			"orders": {grpcBackend(t, "a"), grpcBackend(t, "b")},
		}), "orders", 1, 0), with)
		for host, want := range map[string]string{"0." + ordersHost + ":15443": "b", "1." + ordersHost: "a", "1.ORDERS.shop.east.isthmus.internal": "a"} {
			if err := check(t, grpcClient(t, gw.addr, host), want); err != nil {
				t.Errorf("%s: %v, want an answer of %s", host, err, want)
			}
		}
	})
}

// The shards of an instance that died spread over the others, each staying with one.
func TestShardsOfADeadInstanceSpread(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		dead := deadAddress(t)
		const shards = 60
		all := make([]uint16, shards)
		gw := serve(t, Config{}, sharded(exports(1, map[string][]string{
			"orders": {dead, tlsBackend(t, "a"), tlsBackend(t, "b"), tlsBackend(t, "c")},
		}), "orders", all...), with)
		answers := make([]string, shards)
		var calls sync.WaitGroup
		for n := range shards {
			calls.Go(func() {
				host := fmt.Sprintf("%d.%s", n, ordersHost)
				first, conn, err := call(t, gw.addr, host)
				if err != nil {
					t.Errorf("shard %d: %v", n, err)
					return
				}
				conn.Close()
				again, conn, err := call(t, gw.addr, host)
				if err != nil || again != first {
					t.Errorf("shard %d went to %q, then to %q, %v", n, first, again, err)
					return
				}
				conn.Close()
				answers[n] = first
			})
		}
		calls.Wait()
		took := map[string]int{}
		for _, name := range answers {
			took[name]++
		}
		for _, name := range []string{"a", "b", "c"} {
			if took[name] < shards/3/5 { // one in a million that it is chance
				t.Errorf("%s took %d of %d shards of the instance that died: %v", name, took[name], shards, took)
			}
		}
	})
}

// TestAShardOfAnInstanceThatJustDiedGoesWhereItBelongs has a caller come back before the
// table has what has become of its shard.
func TestAShardOfAnInstanceThatJustDiedGoesWhereItBelongs(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		dead, a, b, c := deadAddress(t), tlsBackend(t, "a"), tlsBackend(t, "b"), tlsBackend(t, "c")
		of := func(instances []string, shards ...uint16) *catalog.GatewayTable {
			return sharded(exports(1, map[string][]string{"orders": instances}), "orders", shards...)
		}
		for heir, want := range map[uint16]string{0: "a", 1: "b", 2: "c"} {
			var got string
			var conn *tls.Conn
			var err error
			for late := true; late; { // a gateway does not wait for long, and this machine may be busy
				gw := serve(t, Config{}, of([]string{dead, a, b, c}, 0, 1, 2, 3), with)
				begin, stored := time.Now(), make(chan time.Duration, 1)
				time.AfterFunc(20*time.Millisecond, func() {
					gw.table.Store(of([]string{a, b, c}, heir, 0, 1))
					stored <- time.Since(begin)
				})
				got, conn, err = call(t, gw.addr, "0."+ordersHost)
				late = <-stored > resettle/2 && got != want
			}
			if err != nil || got != want {
				t.Errorf("answered by %q, %v; want %q", got, err, want)
				continue
			}
			conn.Close()
		}
	})
}

// An instance that goes changes the order of the others for no shard.
func TestRendezvousOrder(t *testing.T) {
	instances := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"}
	first := map[string]int{}
	for shard := range 1000 {
		in := func(from []string) []string {
			d := destination{instances: from, shard: shard}
			var order []string
			for _, i := range d.others() {
				order = append(order, from[i])
			}
			return order
		}
		all := in(instances)
		first[all[0]]++
		without := in(instances[:4])
		if want := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == instances[4] }); !slices.Equal(without, want) {
			t.Fatalf("shard %d: order %v without the last of %v", shard, without, all)
		}
	}
	for _, instance := range instances {
		if first[instance] < 140 || first[instance] > 260 {
			t.Errorf("%s is first for %d of 1,000 shards, want about 200", instance, first[instance])
		}
	}
}

// Connections by the plain name spread better than by chance: twice as many as there
// are instances leave none without.
func TestThePlainNameSpreadsConnections(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		const instances, connections = 10, 100
		var addresses []string
		for i := range instances {
			addresses = append(addresses, tlsBackend(t, fmt.Sprint(i)))
		}
		gw := serve(t, Config{}, exports(1, map[string][]string{"orders": addresses}), with)
		took := map[string]int{}
		for range connections {
			got, _, err := call(t, gw.addr, ordersHost)
			if err != nil {
				t.Fatal(err)
			}
			took[got]++
		}
		most := 0
		for _, n := range took {
			most = max(most, n)
		}
		t.Logf("%d connections over %d instances, the most at one: %d", connections, instances, most)
		if most > connections/instances*3/2 { // by chance it would be 17 as a rule
			t.Errorf("one instance has %d of %d connections: %v", most, connections, took)
		}
	})
}

// Loads must not grow with instances that were once there.
func TestLoadsAreForgottenWithTheLastConnection(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "a"), deadAddress(t)}}), with)
		for range 10 {
			_, conn, err := call(t, gw.addr, ordersHost)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		eventually(t, "all connections are closed", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
		gw.stop()
		if len(gw.loads.open) != 0 {
			t.Errorf("with no connection left, loads are %v", gw.loads.open)
		}
	})
}

func TestLoads(t *testing.T) {
	l := newLoads()
	l.add("a")
	l.add("a")
	l.add("b")
	if got := l.lighter("a", "b"); got != "b" {
		t.Errorf("lighter is %s, want b", got)
	}
	if got := l.lighter("a", "c"); got != "c" {
		t.Errorf("lighter is %s, want c", got)
	}
	l.remove("a")
	l.remove("a")
	l.remove("b")
	l.remove("")
	if len(l.open) != 0 {
		t.Errorf("with no connection left there is %v", l.open)
	}
}

// Whatever the name: it has a place among the instances, or a refusal.
func FuzzRoute(f *testing.F) {
	for _, host := range append(oddShards(), ordersHost, "0."+ordersHost, "65535."+ordersHost, peerHost, idleHost) {
		f.Add(host)
	}
	table := new(live.Value[*catalog.GatewayTable])
	table.Store(sharded(exports(1, map[string][]string{"orders": {"10.0.0.1:1", "10.0.0.2:1"}, "ledger": {"10.0.0.3:1"}, "idle": nil}), "orders", 1, 0, 1))
	g := &Gateway{cfg: Config{Table: table, Peers: func(net.Conn) {}}}
	f.Fuzz(func(t *testing.T, host string) {
		to, refused := g.route(greeting{host: host})
		if refused != nil {
			return
		}
		if to.ofPeers() {
			return
		}
		if i := to.choose(newLoads()); i < 0 || i >= len(to.instances) {
			t.Fatalf("%q: place %d of %d instances", host, i, len(to.instances))
		}
		order := to.others()
		slices.Sort(order)
		for i, place := range order {
			if i != place {
				t.Fatalf("%q: order %v is not one of all %d instances", host, order, len(to.instances))
			}
		}
	})
}
