package resolverservice

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/etcd"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// staleAfter is how long a lease is: long enough for one not to run out because the machine
// is busy.
const staleAfter = 4 * time.Second

// trusting is a Cluster object with roots.
func trusting(name string, gateway net.Addr, roots ...[]byte) string {
	text := clusterAt(name, gateway, staleAfter.String())
	if len(roots) == 0 {
		return text
	}
	text = strings.TrimSuffix(text, "}\n") + ", trust: {domain: " + identitytest.TrustDomain + ", roots: \""
	for _, r := range roots {
		text += strings.ReplaceAll(string(r), "\n", `\n`)
	}
	return text + "\"}}\n"
}

// peer is how a service finds another.
func (r *running) peer(cluster string) *v1alpha1.PeerStatus {
	for _, p := range r.status().GetPeers() {
		if p.GetCluster() == cluster {
			return p
		}
	}
	return &v1alpha1.PeerStatus{}
}

func TestClustersOfTwoAuthoritiesMeet(t *testing.T) { retryIfStalled(t, authoritiesMeet) }

func authoritiesMeet(t *testing.T, wrong func(format string, args ...any)) {
	westCA, eastCA, newCA := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	west, east := start(t, configOf(t, "west", westCA), westCA), start(t, configOf(t, "east", eastCA), eastCA)
	east.apply(export("west") + "---\n" + trusting("west", west.Addr("gateway"), westCA.PEM()))
	east.sidecar(orders, "10.1.0.1:50002")
	west.apply(trusting("east", east.Addr("gateway")) + "---\n" + selectsOrders)
	west.within("an error that names the roots", func() bool {
		return strings.Contains(west.peer("east").GetError(), "add east's root to Cluster east, spec.trust.roots")
	})
	west.apply(trusting("east", east.Addr("gateway"), eastCA.PEM()))
	answered := func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok orders.shop.east.") }
	west.within("orders answered from east", answered)

	west.apply(trusting("east", east.Addr("gateway"), newCA.PEM(), eastCA.PEM())) // nothing lapses
	if !answered() {
		wrong("one root more, and east is gone")
	}
	west.apply(trusting("east", east.Addr("gateway"), newCA.PEM()))
	west.within("east refused, as its root was taken away", func() bool { return west.resolve(checkout, orders) == "stale" })

	uses := map[string]int{}
	for _, c := range west.status().GetTrust() {
		uses[strings.TrimSpace(c.GetUse()+" "+c.GetCluster())]++
	}
	for _, use := range []string{"own certificate", "own root", "peer root east", "peer certificate east"} {
		if uses[use] != 1 {
			t.Errorf("%d lines of %s in %v", uses[use], use, uses)
		}
	}
	if _, body := west.get("/metrics"); !strings.Contains(body, `isthmus_certificate_expires_timestamp_seconds{peer="east",use="peer root"}`) {
		t.Error("no metric tells when the root of east runs out")
	}
}

// Roots change as docs/how-to/trust.md says, and no lookup fails.
func TestRootsChangeWithoutALapse(t *testing.T) { retryIfStalled(t, rootsChange) }

func rootsChange(t *testing.T, wrong func(format string, args ...any)) {
	westCA, oldCA, newCA := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	eastConfig := configOf(t, "east", oldCA)
	west, east := start(t, configOf(t, "west", westCA), westCA), start(t, eastConfig, oldCA)
	east.apply(export("west") + "---\n" + trusting("west", west.Addr("gateway"), westCA.PEM()))
	east.sidecar(orders, "10.1.0.1:50002")
	west.apply(trusting("east", east.Addr("gateway"), oldCA.PEM()) + "---\n" + selectsOrders)
	answered := func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok orders.shop.east.") }
	west.within("orders answered from east", answered)
	shown := func() (fingerprint string) {
		for _, c := range west.status().GetTrust() {
			if c.GetUse() == identity.PeerCertificate {
				fingerprint = c.GetFingerprint()
			}
		}
		return fingerprint
	}
	first := shown()

	conn, steady, ended := west.connect(checkout), make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-steady:
				ended <- n
				return
			case <-time.After(5 * time.Millisecond):
			}
			d, err := v1alpha1.NewResolverClient(conn).Resolve(t.Context(), &v1alpha1.ResolveRequest{Caller: wireApp(checkout), App: wireApp(orders)})
			if err != nil || d.GetOutcome() != "ok" {
				wrong("lookup %d: %v, %v", n, d, err)
			}
		}
	}()
	west.apply(trusting("east", east.Addr("gateway"), oldCA.PEM(), newCA.PEM()))
	files, old := eastConfig.Identity.Files, east.ownPrint()
	pair := newCA.Issue(identity.ServiceApp("", "east"))
	identitytest.Write(t, files.CA, append(oldCA.PEM(), newCA.PEM()...))
	identitytest.Write(t, files.Key, pair.Key)
	identitytest.Write(t, files.Cert, pair.Cert)
	east.within("the new certificate", func() bool { return east.ownPrint() != old })
	west.apply(trusting("east", east.Addr("gateway"), newCA.PEM()))
	west.within("the new certificate of east", func() bool { return shown() != first && west.peer("east").GetState() == "connected" })
	time.Sleep(staleAfter + time.Second) // a link that were not up would lapse
	close(steady)
	t.Logf("%d lookups, none failed", <-ended)
	if n := west.peer("east").GetLapses(); n != 0 {
		wrong("the lease ran out %d times", n)
	}
}

// A cluster whose object was deleted is out at once, whatever its roots: it hears nothing more, and
// no route leads to it or comes from it.
func TestARemovedClusterIsOutAtOnce(t *testing.T) {
	for what, shared := range map[string]bool{"one root": true, "own roots": false} {
		t.Run(what, func(t *testing.T) {
			westCA, eastCA := identitytest.NewCA(t), identitytest.NewCA(t)
			var westRoots, eastRoots [][]byte
			if shared {
				westCA = eastCA
			} else {
				westRoots, eastRoots = [][]byte{westCA.PEM()}, [][]byte{eastCA.PEM()}
			}
			west, east := start(t, configOf(t, "west", westCA), westCA), start(t, configOf(t, "east", eastCA), eastCA)
			selects := selectsOrders + "---\n" + strings.NewReplacer("checkout", "orders", "app: orders", "app: checkout").Replace(selectsOrders)
			east.apply(export("west") + "---\n" + selects + "---\n" + trusting("west", west.Addr("gateway"), westRoots...))
			west.apply(strings.ReplaceAll(export("east"), "orders", "checkout") + "---\n" + selects + "---\n" + trusting("east", east.Addr("gateway"), eastRoots...))
			east.sidecar(orders, "10.1.0.1:50002")
			west.sidecar(checkout, "10.2.0.1:50002")
			west.within("orders answered from east", func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok orders.shop.east.") })
			east.within("checkout answered from west", func() bool { return strings.HasPrefix(east.resolve(orders, checkout), "ok checkout.shop.west.") })

			_, err := v1alpha1.NewObjectsClient(east.connect(identity.CLIApp(""))).Delete(t.Context(), &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{{Kind: "Cluster", Name: "west"}}})
			if err != nil {
				t.Fatal(err)
			}
			east.within("no route to west", func() bool { return !strings.HasPrefix(east.resolve(orders, checkout), "ok") })
			west.within("west refused", func() bool { return west.peer("east").GetError() != "" })
			east.within("nobody follows the exports", func() bool { return !east.peers.HasSubscribers() })
			east.apply(strings.Replace(export("west"), "orders", "ledger", 1)) // nobody is told of it
			west.within("the lease of west ran out", func() bool { return west.resolve(checkout, orders) == "stale" })
			if p := west.peer("east"); p.GetExports() != 1 || p.GetState() != "stale" || !strings.Contains(p.GetError(), "it may have no Cluster object for this one") {
				t.Errorf("west says of east: %v", p)
			}
		})
	}
}

// Two services with certificates and stores of their own both say that they are east. West goes by one
// of them, and names the other. A replica, which shares the store, is not another.
func TestASecondServiceOfANameIsNamed(t *testing.T) {
	server := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	inEtcd := func(prefix string) Store {
		return Store{Etcd: &etcd.Config{Endpoints: []string{server.Addr()}, Prefix: prefix}}
	}
	for name, stores := range map[string][]Store{"embedded": {{}, {}}, "etcd": {inEtcd("one/"), inEtcd("one/"), inEtcd("two/")}} {
		t.Run(name, func(t *testing.T) {
			ca := identitytest.NewCA(t)
			west := start(t, configOf(t, "west", ca), ca)
			gateways := make([]string, 0, len(stores))
			for i, store := range stores {
				cfg := configOf(t, "east", ca)
				if store.Etcd != nil {
					cfg.Store = store
				}
				east := start(t, cfg, ca)
				east.apply(export("west") + "---\n" + clusterOnly("west"))
				gateways = append(gateways[:min(1, len(gateways))], fmt.Sprintf("{address: '%s'}", east.Addr("gateway"))) // a link has two connections
				west.apply("apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: east}\nspec: {gateways: [" + strings.Join(gateways, ", ") + "]}\n")
				if i == len(stores)-1 {
					break
				}
				west.within("its gateways are heard", func() bool {
					connected := 0
					for _, g := range west.peer("east").GetGateways() {
						if g.GetState() == "connected" {
							connected++
						}
					}
					return connected == len(gateways)
				})
				if said := west.peer("east").GetSecondService(); said != "" {
					t.Errorf("of %d gateways of one cluster, status says %q", len(gateways), said)
				}
			}
			west.within("the second named", func() bool { return west.peer("east").GetSecondService() != "" })
			said, _, _ := strings.Cut(west.peer("east").GetSecondService(), "; ")
			found := false
			for _, r := range west.checks() {
				found = found || r.Check == "peer-name" && r.Level == check.Fail && r.Name == "east" && r.Found == said
			}
			if !found {
				t.Errorf("no check says %q", said)
			}
			west.tells(0, "WARN a second service has the name of a peer; it is refused peer=east gateway=.*")
		})
	}
}

// ownPrint is the fingerprint of a service's own certificate.
func (r *running) ownPrint() string {
	for _, c := range r.status().GetTrust() {
		if c.GetUse() == identity.OwnCertificate {
			return c.GetFingerprint()
		}
	}
	return ""
}

func TestAnOperatorIsToldMoreOfPeersThanAnApp(t *testing.T) {
	ca := identitytest.NewCA(t)
	west, east := start(t, configOf(t, "west", ca), ca), start(t, configOf(t, "east", ca), ca)
	others := strings.Replace(export("west"), "cluster: west", "cluster: west, app: cart", 1)
	east.apply(others + "---\n" + clusterOnly("west"))
	west.apply(clusterAt("east", east.Addr("gateway"), staleAfter.String()) + "---\n" + selectsOrders)
	west.within("east heard", func() bool { return west.peer("east").GetExports() == 1 })
	ask := func(as catalog.App) []*v1alpha1.RouteDecision {
		t.Helper()
		d, err := v1alpha1.NewResolverClient(west.connect(as)).Resolve(t.Context(), &v1alpha1.ResolveRequest{Caller: wireApp(checkout), App: wireApp(orders)})
		if err != nil {
			t.Fatal(err)
		}
		return d.GetRoutes()
	}
	told := ask(identity.CLIApp(""))
	if len(told) != 2 || told[1].GetReason() != "exports shop/orders to this cluster, but not to shop/checkout" || !strings.HasPrefix(told[1].GetPeer(), "heard ") {
		t.Errorf("an operator is told %v", told)
	}
	if told := ask(checkout); strings.Contains(fmt.Sprint(told), "east") {
		t.Errorf("the app is told %v", told)
	}
	east.apply(export("north"))
	west.within("told that east exports nothing", func() bool {
		routes := ask(identity.CLIApp(""))
		return len(routes) == 2 && routes[1].GetReason() == "exports no shop/orders to this cluster"
	})
}
