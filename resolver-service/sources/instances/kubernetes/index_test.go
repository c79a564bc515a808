package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// parsed is an object as the API server sends it.
func parsed(t testing.TB, body map[string]any, pod bool) object {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse(text, pod)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// held is what an index has come to, and what it refuses.
type held struct {
	*index
	all map[string]catalog.Instance
}

func hold(c Config) *held { return &held{newIndex(c), map[string]catalog.Instance{}} }

// take applies objects and returns what changed.
func (h *held) take(objects ...object) instances.Change {
	c, _ := h.apply(objects)
	for _, key := range c.Delete {
		delete(h.all, key.App.String()+" "+key.ID)
	}
	for _, i := range c.Put {
		h.all[i.App.String()+" "+i.ID] = i
	}
	return c
}

func (h *held) lines() []string {
	var all []string
	for name, i := range h.all {
		text := name + " " + i.Address.String()
		if i.Zone != "" {
			text += " in " + i.Zone
		}
		if i.Version != "" {
			text += " version " + i.Version
		}
		if i.Draining {
			text += " draining"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func (h *held) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := h.lines(); !slices.Equal(got, want) {
		t.Errorf("%s: there are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func ordersSlice(t testing.TB, name, family string, endpoints ...map[string]any) object {
	return parsed(t, sliceOf("shop", name, "orders-dapr", family, 50002, endpoints...), false)
}

func gone(o object) object {
	o.deleted = true
	return o
}

func TestConditions(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		ready, serving, terminating *bool
		draining                    bool
	}{
		{nil, nil, nil, false}, // what is not said counts as ready
		{&yes, nil, nil, false},
		{&yes, &yes, &no, false},
		{&no, &no, &no, true},   // it starts, or its probe fails
		{&no, &yes, &yes, true}, // it ends, and answers
		{&no, &no, &yes, true},
		{&yes, &yes, &yes, true}, // its service publishes all that there are
		{nil, nil, &yes, true},
	} {
		e := endpointOf("p", "10.0.0.1", "ready")
		conditions := map[string]any{}
		for name, value := range map[string]*bool{"ready": c.ready, "serving": c.serving, "terminating": c.terminating} {
			if value != nil {
				conditions[name] = *value
			}
		}
		e["conditions"] = conditions
		h := hold(Config{})
		h.take(ordersSlice(t, "a", "IPv4", e))
		if got := h.all["shop/orders p"]; got.Draining != c.draining || !got.Address.IsValid() {
			t.Errorf("%v: %+v; want draining %t", conditions, got, c.draining)
		}
	}
}

func TestAPodWithBothFamiliesIsOneInstance(t *testing.T) {
	four, six := ordersSlice(t, "a4", "IPv4", endpointOf("p", "10.0.0.1", "ready")), ordersSlice(t, "a6", "IPv6", endpointOf("p", "fd00::1", "ready"))
	for _, c := range []struct{ family, want, other string }{{"", "10.0.0.1:50002", "[fd00::1]:50002"}, {ipv4, "10.0.0.1:50002", "[fd00::1]:50002"}, {ipv6, "[fd00::1]:50002", "10.0.0.1:50002"}} {
		h := hold(Config{IPFamily: c.family})
		h.take(four, six)
		h.want(t, "both", "shop/orders p "+c.want+" in zone-of-node")
		if c.family == ipv6 {
			h.take(gone(six))
		} else {
			h.take(gone(four))
		}
		h.want(t, "the other one", "shop/orders p "+c.other+" in zone-of-node")
	}
}

// TestAnEndpointInTwoSlices: as Kubernetes spreads endpoints over slices anew, one is in
// two for a while, or in the old one still with what it was.
func TestAnEndpointInTwoSlices(t *testing.T) {
	h := hold(Config{})
	h.take(ordersSlice(t, "a", "IPv4", endpointOf("p", "10.0.0.1", "ready"), endpointOf("q", "10.0.0.2", "starting")))
	h.take(ordersSlice(t, "b", "IPv4", endpointOf("p", "10.0.0.1", "starting"), endpointOf("q", "10.0.0.2", "ready")))
	h.want(t, "in both", "shop/orders p 10.0.0.1:50002 in zone-of-node", "shop/orders q 10.0.0.2:50002 in zone-of-node")
	if c := h.take(gone(ordersSlice(t, "a", "IPv4"))); len(c.Delete) > 0 {
		t.Errorf("with the old slice went %v", c.Delete)
	}
	h.want(t, "in one", "shop/orders p 10.0.0.1:50002 in zone-of-node draining", "shop/orders q 10.0.0.2:50002 in zone-of-node")
}

// TestAnAddressThatIsUsedAnew: a pod that ends stands beside the one that has its IP by now, in one
// slice or two. Both are told of; the topology gives the address to the ready one.
func TestAnAddressThatIsUsedAnew(t *testing.T) {
	old, heir := endpointOf("old", "10.0.0.1", "draining"), endpointOf("heir", "10.0.0.1", "ready")
	for what, slices := range map[string][]object{
		"one slice":                {ordersSlice(t, "a", "IPv4", old, heir)},
		"one slice, heir first":    {ordersSlice(t, "a", "IPv4", heir, old)},
		"two slices":               {ordersSlice(t, "a", "IPv4", old), ordersSlice(t, "b", "IPv4", heir)},
		"two slices, heir first":   {ordersSlice(t, "a", "IPv4", heir), ordersSlice(t, "b", "IPv4", old)},
		"both without a targetRef": {ordersSlice(t, "a", "IPv4", anonymous(old)), ordersSlice(t, "b", "IPv4", anonymous(heir))},
		"another app's": {
			parsed(t, sliceOf("shop", "young", "billing-dapr", "IPv4", 50002, old), false), ordersSlice(t, "b", "IPv4", heir),
		},
	} {
		h := hold(Config{})
		c := h.take(slices...)
		g := topology.NewGraph(topology.Config{Cluster: "west", Open: true})
		g.Apply(topology.Change{Objects: &topology.ObjectChange{Full: true}})
		var open *catalog.View
		for _, u := range g.Apply(topology.Change{Instances: []topology.InstanceChange{{Source: "kubernetes", Rank: topology.Scheduled, Put: c.Put, Delete: c.Delete}}}) {
			if u.Open != nil {
				open = u.Open
			}
		}
		e, _ := open.Entries.Get(catalog.App{Namespace: "shop", ID: "orders"})
		if r := e.Routes[0]; r.Ready != 1 || r.Draining != 0 {
			t.Errorf("%s: %d ready, %d draining; want the one address ready", what, r.Ready, r.Draining)
		}
	}
}

func anonymous(endpoint map[string]any) map[string]any {
	endpoint = maps.Clone(endpoint)
	delete(endpoint, "targetRef")
	return endpoint
}

func TestWhatIsNoAppOfDapr(t *testing.T) {
	h := hold(Config{})
	for _, service := range []string{"orders", "-dapr", "", "dapr"} {
		h.take(parsed(t, sliceOf("shop", "x"+service, service, "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")), false))
	}
	h.want(t, "other services")
	if len(h.refusals()) > 0 {
		t.Errorf("refused %v; want that they are left alone", h.refusals())
	}
	h.take(parsed(t, sliceOf("shop", "a", "x.y-dapr", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")), false))
	if all := h.refusals(); len(all) != 1 || all[0].Where != "EndpointSlice shop/a" {
		t.Errorf("refused %v; want an app-id that can't be one", all)
	}
}

func TestASliceThatComesToBeOfAnotherAppLeavesTheFirst(t *testing.T) {
	h := hold(Config{})
	h.take(ordersSlice(t, "a", "IPv4", endpointOf("p", "10.0.0.1", "ready")))
	h.take(parsed(t, sliceOf("shop", "a", "billing-dapr", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")), false))
	h.want(t, "another app", "shop/billing p 10.0.0.1:50002 in zone-of-node")
	h.take(parsed(t, sliceOf("shop", "a", "billing", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")), false))
	h.want(t, "none")
	if len(h.slices)+len(h.byApp)+len(h.reported)+len(h.users)+len(h.refused) > 0 {
		t.Errorf("something is kept of what is gone: %+v", h.index)
	}
}

func TestZonesOfPods(t *testing.T) {
	pod := func(labels map[string]string) object {
		return parsed(t, map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "p", "labels": labels}}, true)
	}
	slice := ordersSlice(t, "a", "IPv4", endpointOf("p", "10.0.0.1", "ready"))
	h := hold(Config{ZoneLabel: "rack"})
	h.take(slice)
	h.want(t, "before its pod", "shop/orders p 10.0.0.1:50002 in zone-of-node")
	h.take(pod(map[string]string{"rack": "r1"}))
	h.want(t, "with its pod", "shop/orders p 10.0.0.1:50002 in r1")
	h.take(pod(map[string]string{"rack": "r2"}))
	h.want(t, "with another label", "shop/orders p 10.0.0.1:50002 in r2")
	h.take(gone(pod(nil)))
	h.want(t, "without its pod", "shop/orders p 10.0.0.1:50002 in zone-of-node")
	h.take(pod(map[string]string{"rack": "r3"}), gone(slice))
	h.want(t, "without its slice")
	if len(h.users)+len(h.reported) > 0 {
		t.Errorf("something is kept of what is gone: %v, %v", h.users, h.reported)
	}
}

func TestVersionsOfPods(t *testing.T) {
	pod := func(version string) object {
		labels := map[string]string{"app.kubernetes.io/version": version}
		return parsed(t, map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "p", "labels": labels}}, true)
	}
	h := hold(Config{VersionLabel: "app.kubernetes.io/version"})
	h.take(ordersSlice(t, "a", "IPv4", endpointOf("p", "10.0.0.1", "ready")), pod("1.9"))
	h.want(t, "with its pod", "shop/orders p 10.0.0.1:50002 in zone-of-node version 1.9")
	h.take(pod("2.0"))
	h.want(t, "with another label", "shop/orders p 10.0.0.1:50002 in zone-of-node version 2.0")
}

func TestEndpointsThatCantBeUsedAreNamed(t *testing.T) {
	noAddress := endpointOf("q", "", "ready")
	noAddress["addresses"] = []string{}
	h := hold(Config{})
	c := h.take(ordersSlice(t, "a", "IPv4", endpointOf("p", "10.0.0.1", "ready"), noAddress, endpointOf("r", "here", "ready")))
	var got []string
	for _, r := range c.Refused {
		got = append(got, fmt.Sprintf("%s: %v", r.Where, r.Err))
	}
	want := []string{"EndpointSlice shop/a, endpoint 1: it has no address", `EndpointSlice shop/a, endpoint 2: address "here": is no IP`}
	if !slices.Equal(got, want) {
		t.Errorf("refused %q, want %q", got, want)
	}
	h.want(t, "the rest", "shop/orders p 10.0.0.1:50002 in zone-of-node")
	noPorts := ordersSlice(t, "empty", "IPv4")
	noPorts.slice.Ports = nil
	if c := h.take(noPorts); len(c.Refused) != 2 {
		t.Errorf("a service without endpoints is refused: %v", c.Refused)
	}
}

func TestSettings(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for want, c := range map[string]Config{
		"kubeconfig: ":                {},
		"context: ":                   {Context: "a"},
		"ipFamily: ":                  {Kubeconfig: "x", IPFamily: "ipv5"},
		"namespaces: ":                {Kubeconfig: "x", Namespaces: []string{"Not One"}},
		"namespaces: shop is there":   {Kubeconfig: "x", Namespaces: []string{"shop", "shop"}},
		"namespaces: 101 are more":    {Kubeconfig: "x", Namespaces: make([]string, 101)},
		"zoneLabel: ":                 {Kubeconfig: "x", ZoneLabel: "a b"},
		"versionLabel: ":              {Kubeconfig: "x", VersionLabel: "a b"},
		"kubeconfig: /nowhere/config": {Kubeconfig: "/nowhere/config"},
	} {
		if _, err := New(c, nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestCallsThatPodsDeclare(t *testing.T) {
	pod := func(name, text string) object {
		o := parsed(t, map[string]any{"metadata": map[string]any{"namespace": "shop", "name": name, "annotations": map[string]string{CallsAnnotation: text}}}, true)
		return o
	}
	slice := ordersSlice(t, "a", "IPv4", endpointOf("p", "10.0.0.1", "ready"))
	h := hold(Config{Calls: true})
	want := func(what string, calls catalog.Calls) {
		t.Helper()
		if i := h.all["shop/orders p"]; i.Calls != calls || !i.Address.IsValid() {
			t.Errorf("%s: %+v, want calls %q", what, i, calls)
		}
	}
	h.take(slice, pod("p", "ledger.finance, billing"))
	want("its annotation", "finance/ledger,shop/billing")
	c := h.take(pod("p", "shop/billing"))
	want("one that can't be read", "")
	if len(c.Remarks) != 1 || c.Remarks[0].Where != "Pod shop/p, annotation isthmus.dev/calls" || !strings.Contains(c.Remarks[0].Err.Error(), `app-id "shop/billing"`) {
		t.Errorf("remarks %v", c.Remarks)
	}
	if _, news := h.apply([]object{pod("p", "shop/billing")}); news {
		t.Error("the same again is news")
	}
	if c := h.take(pod("p", "")); len(c.Remarks) > 0 {
		t.Errorf("remarks %v on an annotation that was corrected", c.Remarks)
	}
	h = hold(Config{ZoneLabel: "rack"})
	h.take(slice, pod("p", "billing"))
	want("nobody asked for calls", "")
}

// An instance's time is when its pod was created where pods are read, or else its slice.
func TestInstancesSayWhenTheyWereCreated(t *testing.T) {
	at := func(second int) string { return fmt.Sprintf("2026-11-20T18:00:%02dZ", second) }
	slice := func(name, service, created string, pods ...string) object {
		var endpoints []map[string]any
		for n, pod := range pods {
			endpoints = append(endpoints, endpointOf(pod, fmt.Sprintf("10.0.0.%d", n+1), "ready"))
		}
		text := sliceOf("shop", name, service+"-dapr", "IPv4", 50002, endpoints...)
		text["metadata"].(map[string]any)["creationTimestamp"] = created
		return parsed(t, text, false)
	}
	podAt := func(name, created string) object {
		return parsed(t, map[string]any{"metadata": map[string]any{"name": name, "namespace": "shop", "creationTimestamp": created}}, true)
	}
	objects := []object{
		slice("a", "orders", at(33), "d", "c"),
		slice("b", "billing", at(32), "z"),
		slice("c", "orders", at(31), "c"), // while it is spread anew, in both
		slice("e", "ledger", at(33), "y"),
	}
	pods := []object{podAt("d", at(10)), podAt("z", at(50))}
	for _, c := range []struct {
		what string
		with []object
		want string
	}{
		{"without pods", objects, "c:31 d:33 y:33 z:32"},
		{"with pods", slices.Concat(objects, pods), "c:31 d:10 y:33 z:50"},
		{"with pods that are read first", slices.Concat(pods, objects), "c:31 d:10 y:33 z:50"},
	} {
		for range 20 {
			var got []string
			change, _ := newIndex(Config{ZoneLabel: "rack"}).apply(c.with)
			for _, i := range change.Put {
				got = append(got, fmt.Sprintf("%s:%d", i.ID, time.Unix(i.Since, 0).Second()))
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != c.want {
				t.Fatalf("%s: %s, want %s", c.what, text, c.want)
			}
		}
	}
	if o := parsed(t, sliceOf("shop", "a", "orders-dapr", "IPv4", 50002), false); o.created != 0 {
		t.Errorf("created at %d without a time", o.created)
	}
}

// FuzzParse holds that nothing that an API server could send breaks the index.
func FuzzParse(f *testing.F) {
	text, _ := json.Marshal(sliceOf("shop", "a", "orders-dapr", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")))
	f.Add(text, false)
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"shop"}}`), true)
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"shop","annotations":{"isthmus.dev/calls":"orders,"}}}`), true)
	f.Fuzz(func(t *testing.T, text []byte, pod bool) {
		o, err := parse(text, pod)
		if err != nil {
			return
		}
		x := newIndex(Config{ZoneLabel: "rack", Calls: true})
		x.apply([]object{o})
		o.deleted = true
		x.apply([]object{o})
		if len(x.slices)+len(x.byApp)+len(x.reported)+len(x.users)+len(x.refused)+len(x.pods)+len(x.unread) > 0 {
			t.Errorf("something is kept of what is gone: %+v", x)
		}
	})
}
