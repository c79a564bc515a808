package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// pod is one of Kubernetes, as far as policies look at it.
type pod struct {
	namespace string
	labels    map[string]string
}

func podOf(a catalog.App) pod { return pod{a.Namespace, map[string]string{podLabel: a.ID}} }

// admits asks what the policies mean in Kubernetes.
func admits(t *testing.T, policies []Object, from, to pod, protocol string, number int) bool {
	t.Helper()
	var all []Policy
	for i := range policies {
		var p Policy
		if err := json.Unmarshal(policies[i].JSON(), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return Blocking(all, from.end(), to.end(), Port{Protocol: protocol, Number: number}) == nil
}

func (p pod) end() *End {
	return &End{Namespace: p.namespace, NamespaceLabels: map[string]string{inNamespace: p.namespace}, Labels: p.labels}
}

// TestPoliciesLetInWhomTheGuardLetsIn evaluates policies of random objects over all pairs of pods.
func TestPoliciesLetInWhomTheGuardLetsIn(t *testing.T) {
	var apps []catalog.App
	for _, namespace := range []string{"shop", "finance"} {
		for i := range 4 {
			apps = append(apps, app(namespace, fmt.Sprint("app-", i)))
		}
	}
	letIn, kept := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		top := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: seed%2 == 0}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		var owner sync.WaitGroup
		owner.Go(func() { _ = top.Run(ctx) })
		objects := []catalog.Object{&catalog.Cluster{Name: "east", Trust: catalog.Trust{Domain: "east.example"}}}
		change := topology.InstanceChange{Source: "kubernetes", Rank: topology.Scheduled}
		for i, a := range apps {
			if r.IntN(3) > 0 {
				s := &catalog.AppEndpoints{App: a}
				for _, callee := range r.Perm(len(apps))[:r.IntN(4)] {
					e := catalog.Endpoint{App: apps[callee]}
					if r.IntN(3) == 0 {
						e.Routes = []catalog.RouteSpec{{Cluster: []string{"east", catalog.LocalCluster}[r.IntN(2)], Weight: 1}}
					}
					s.Endpoints = append(s.Endpoints, e)
				}
				objects = append(objects, s)
			}
			if r.IntN(3) == 0 {
				objects = append(objects, &catalog.AppExport{App: a, Allow: []catalog.Allow{{Cluster: []string{"east", "local"}[r.IntN(2)]}}})
			}
			change.Put = append(change.Put, catalog.Instance{
				ID: "p", App: a, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 50002), Account: a.ID,
			})
		}
		if _, err := top.Apply(ctx, topology.Change{Objects: &topology.ObjectChange{Full: true, Put: objects}, Instances: []topology.InstanceChange{change}}); err != nil {
			t.Fatal(err)
		}
		fences, err := top.Inventory().Fences(ctx, apps)
		if err != nil || len(fences) != len(apps) {
			t.Fatalf("%d fences, %v", len(fences), err)
		}
		callees, _, err := top.Inventory().Callees(ctx, apps)
		if err != nil {
			t.Fatal(err)
		}
		var all []Object
		principals := map[catalog.App][]string{}
		for i := range fences {
			f := &fences[i]
			some, notes := writer().Write(Network, f)
			if len(notes) > 0 {
				t.Errorf("%s: %q", f.App, notes)
			}
			all = append(all, some...)
			some, _ = writer().Write(Istio, f)
			principals[f.App] = some[0].Spec.(istioSpec).Rules[0].From[0].Source.Principals
		}
		for i := range callees {
			to := callees[i].App
			access := callees[i].Access
			for _, from := range apps {
				want := from == to || access.Declared.Has(from) || access.Undeclared.Has(from)
				if got := admits(t, all, podOf(from), podOf(to), "TCP", 50002); got != want {
					t.Fatalf("seed %d: %s reaches %s: %t, want %t", seed, from, to, got, want)
				}
				if got := slices.Contains(principals[to], "cluster.local/ns/"+from.Namespace+"/sa/"+from.ID); got != want {
					t.Fatalf("seed %d: Istio lets %s call %s: %t, want %t", seed, from, to, got, want)
				}
				if want {
					letIn++
				} else {
					kept++
				}
			}
			gateway := pod{"isthmus-system", map[string]string{"app.kubernetes.io/name": "isthmus"}}
			exported := access.Remote != nil && len(access.Remote.All()) > 0
			if got := admits(t, all, gateway, podOf(to), "TCP", 50002); got != exported {
				t.Fatalf("seed %d: the gateway reaches %s: %t, want %t", seed, to, got, exported)
			}
			if stranger := (pod{"shop", nil}); admits(t, all, stranger, podOf(to), "TCP", 50002) {
				t.Fatalf("seed %d: a pod without an app reaches %s", seed, to)
			}
			for _, port := range []int{1, 50001, 50003, 65535} {
				if !admits(t, all, pod{"shop", nil}, podOf(to), "TCP", port) || !admits(t, all, pod{"shop", nil}, podOf(to), "UDP", port) {
					t.Fatalf("port %s of %s is closed", strconv.Itoa(port), to)
				}
			}
		}
		stop()
		owner.Wait()
	}
	if letIn == 0 || kept == 0 {
		t.Errorf("%d pairs let in, %d kept out", letIn, kept)
	}
}

// FuzzNames holds that policies are JSON whatever apps are called.
func FuzzNames(f *testing.F) {
	f.Add("shop", "orders", "default")
	f.Fuzz(func(t *testing.T, namespace, id, account string) {
		a := topology.Workload{App: app(namespace, id), Accounts: []string{account}}
		for _, kind := range Kinds() {
			objects, _ := writer().Write(kind, &topology.Fence{Workload: a, Callers: []topology.Workload{a}})
			for i := range objects {
				if !json.Valid(objects[i].JSON()) {
					t.Errorf("%s of %q/%q is no JSON", kind, namespace, id)
				}
			}
		}
	})
}
