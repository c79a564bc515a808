package resolverservice

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// known is a Cluster object with more in its spec.
func known(name string, gateway net.Addr, more string) string {
	return strings.Replace(clusterAt(name, gateway, "1m"), "spec: {", "spec: {"+more+", ", 1)
}

// shown lists the Cluster objects that a service shows, each with where it is from.
func (r *running) shown() string {
	answer, err := v1alpha1.NewObjectsClient(r.connect(identity.CLIApp(""))).Get(r.t.Context(), &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: string(catalog.KindCluster)}})
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for _, o := range answer.GetObjects() {
		all = append(all, strings.TrimSpace(o.GetKey().GetName()+" "+o.GetSource()))
	}
	return strings.Join(all, ", ")
}

// Hub has objects for west, east and north, and introduces the first two to each other. Clusters whose
// authorities differ, each with a trust domain of its own, then call each other without any object.
func TestAHubIntroducesClustersToEachOther(t *testing.T) {
	cas, services := map[string]*identitytest.CA{}, map[string]*running{}
	configs := map[string]*Config{}
	launch := func(name string) {
		services[name] = start(t, configs[name], cas[name])
		services[name].domain = name + ".corp"
	}
	for _, name := range []string{"hub", "west", "east", "north"} {
		ca := identitytest.NewCA(t)
		cfg := configOf(t, name, ca)
		cfg.Listen.Gateway = freeAddress(t)
		own := ca.Config(identity.ServiceApp("", name), identitytest.In(t, name+".corp", identity.ServiceApp("", name)))
		cfg.Identity.Files = own.Files
		cas[name], configs[name] = ca, cfg
		launch(name)
	}
	hub, west, east, north := services["hub"], services["west"], services["east"], services["north"]
	trust := func(name string) string {
		return fmt.Sprintf(`trust: {domain: %s.corp, roots: "%s"}`, name, strings.ReplaceAll(string(cas[name].PEM()), "\n", `\n`))
	}
	const toBoth, rule = "introduceTo: {names: [west, east]}, ", `introduces: {names: ["*"], trustDomains: ["*.corp"]}, `
	eastAtHub := func(more string) string { return known("east", east.Addr("gateway"), more+trust("east")) }
	hub.apply(known("west", west.Addr("gateway"), toBoth+trust("west")) + "---\n" + eastAtHub(toBoth) + "---\n" + known("north", north.Addr("gateway"), trust("north")))
	hubHere := known("hub", hub.Addr("gateway"), rule+trust("hub"))
	for _, r := range []*running{west, east, north} {
		r.apply(hubHere)
	}
	there := tlsEcho(t, cas["east"])
	east.apply(export("west"))
	east.sidecar(orders, there)
	west.apply(selectsOrders)

	const introduced = "east from the introduction by hub, hub"
	ordersInEast := fmt.Sprintf("ok orders.shop.east.isthmus.internal:%d", east.Addr("gateway").(*net.TCPAddr).Port)
	called := func(what string) {
		t.Helper()
		west.within(what+": orders answered from east", func() bool { return west.resolve(checkout, orders) == ordersInEast })
		conn, err := tls.Dial("tcp", east.Addr("gateway").String(), &tls.Config{ServerName: "orders.shop.east.isthmus.internal", InsecureSkipVerify: true})
		if err != nil {
			t.Fatalf("%s: no call through the gateway: %v", what, err)
		}
		conn.Close()
	}
	called("introduced")
	east.within("the same on the other side", func() bool { return east.shown() == "hub, west from the introduction by hub" })
	if got := west.shown(); got != introduced {
		t.Errorf("west has %s", got)
	}
	if p := west.peer("east"); p.GetState() != "connected" || p.GetIntroducedBy() != "hub" {
		t.Errorf("west's peer east: %v", p)
	}
	if p := west.peer("hub").GetIntroduces(); p.GetTold() != 1 || p.GetTaken() != 1 {
		t.Errorf("hub introduces to west: %v", p)
	}
	north.within("the hub heard", func() bool { return north.peer("hub").GetState() == "connected" })

	// The hub's object changes while all runs, and a word on trust that is none of ours is refused.
	hub.apply(strings.ReplaceAll(eastAtHub(toBoth), "domain: east.corp", "domain: west.corp"))
	west.within("east refused", func() bool {
		p := west.peer("hub").GetIntroduces().GetProblems()
		return len(p) == 1 && p[0].GetCluster() == "east" && strings.Contains(p[0].GetWhy(), "brings roots for trust domain west.corp, which is this cluster's own")
	})
	west.within("no route to it", func() bool { return !strings.HasPrefix(west.resolve(checkout, orders), "ok") })
	hub.apply(eastAtHub(toBoth))
	called("corrected")

	// An own object wins, whole, and what was introduced is back once it is gone.
	west.apply(known("east", east.Addr("gateway"), trust("east")))
	west.within("the own object", func() bool { return west.shown() == "east, hub" })
	if got := west.delete(catalog.Key{Kind: catalog.KindCluster, Name: "east"}); got != "" {
		t.Fatal(got)
	}
	west.within("introduced again", func() bool { return west.shown() == introduced })
	if got := west.delete(catalog.Key{Kind: catalog.KindCluster, Name: "east"}); !strings.Contains(got, "is derived from the introduction by hub") {
		t.Errorf("deleting an introduced cluster: %q", got)
	}
	called("after an own object")
	for spec, fails := range map[string]uint32{"": 1, `introduces: {names: ["*"]}, `: 1, `introduces: {names: [west], trustDomains: ["*.corp"]}, `: 1, rule: 0} {
		dry := west.applyOr(known("hub", hub.Addr("gateway"), spec+trust("hub")), true)
		if got := dry.GetCounts().GetFail(); got != fails {
			t.Errorf("a dry run of the hub's object with %q: %d lookups fail, want %d", spec, got, fails)
		}
	}
	called("after dry runs")

	// The hub goes, and west starts anew: what is known goes on.
	if err := hub.stop(); err != nil {
		t.Fatal(err)
	}
	west.within("the file", func() bool {
		info, err := os.Stat(configs["west"].dataDir().Own("introductions"))
		return err == nil && info.Size() > 0
	})
	if err := west.stop(); err != nil {
		t.Fatal(err)
	}
	launch("west")
	west = services["west"]
	called("a restart without the hub")
	if got := west.shown(); got != introduced {
		t.Errorf("after a restart west has %s", got)
	}

	// The hub is back and withdraws it; then the rule goes, and the hub's object.
	launch("hub")
	hub = services["hub"]
	hub.apply(eastAtHub(""))
	west.within("withdrawn", func() bool { return west.shown() == "hub" })
	west.within("no route to it", func() bool { return !strings.HasPrefix(west.resolve(checkout, orders), "ok") })
	hub.apply(eastAtHub(toBoth))
	called("told again")
	west.apply(known("hub", hub.Addr("gateway"), trust("hub")))
	west.within("no rule", func() bool { return west.shown() == "hub" })
	west.apply(hubHere)
	called("the rule again")
	if got := west.delete(catalog.Key{Kind: catalog.KindCluster, Name: "hub"}); got != "" {
		t.Fatal(got)
	}
	west.within("nothing without the hub's object", func() bool { return west.shown() == "" && len(west.status().GetPeers()) == 0 })
	if got := north.shown(); got != "hub" {
		t.Errorf("north, which is told of none, has %s", got)
	}
}

// delete deletes an object, and returns the refusal.
func (r *running) delete(key catalog.Key) string {
	_, err := v1alpha1.NewObjectsClient(r.connect(identity.CLIApp(""))).Delete(r.t.Context(), &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{{Kind: string(key.Kind), Name: key.Name}}})
	if err != nil {
		return err.Error()
	}
	return ""
}
