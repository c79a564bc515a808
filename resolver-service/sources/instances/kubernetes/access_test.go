package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/instancestest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// zoneOf is that of the one instance; empty if there is another number of them.
func zoneOf(f *instancestest.Followed) string {
	if all := f.Stands(); len(all) == 1 {
		return all[0].Zone
	}
	return ""
}

func TestZonesOfRealPods(t *testing.T) {
	c := theCluster(t)
	config := c.config(t, "zones")
	config.ZoneLabel = "rack"
	c.put(t, slicesOf("shop").Path, "a", sliceOf("shop", "a", "orders-dapr", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")))
	c.pod(t, "shop", "p", map[string]string{"rack": "r1"})
	f := instancestest.Follow(t, newSource(t, config))
	serverstest.Await(t, "the zone of the label", func() bool { return zoneOf(f) == "r1" })
	c.pod(t, "shop", "p", map[string]string{"rack": "r2"})
	serverstest.Await(t, "another label", func() bool { return zoneOf(f) == "r2" })
	c.remove(t, podsOf("shop").Path, "p")
	serverstest.Await(t, "the zone of the node", func() bool { return zoneOf(f) == "zone-of-node" })
	if s := f.Status(); s.Err != nil {
		t.Error(s.Err)
	}
}

func TestVersionsOfRealPods(t *testing.T) {
	c := theCluster(t)
	config := c.config(t, "zones")
	config.VersionLabel = "app.kubernetes.io/version"
	c.put(t, slicesOf("shop").Path, "a", sliceOf("shop", "a", "orders-dapr", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")))
	c.pod(t, "shop", "p", map[string]string{"app.kubernetes.io/version": "1.9"})
	f := instancestest.Follow(t, newSource(t, config))
	for _, version := range []string{"1.9", "2.0-rc.1", ""} {
		c.pod(t, "shop", "p", map[string]string{"app.kubernetes.io/version": version})
		serverstest.Await(t, "version "+version, func() bool {
			all := f.Stands()
			return len(all) == 1 && all[0].Version == version
		})
	}
}

func TestCallsOfRealPods(t *testing.T) {
	c := theCluster(t)
	config := c.config(t, "zones")
	config.Calls = true
	c.put(t, slicesOf("shop").Path, "a", sliceOf("shop", "a", "orders-dapr", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")))
	c.pod(t, "shop", "p", nil)
	f := instancestest.Follow(t, newSource(t, config))
	for text, want := range map[string]catalog.Calls{"ledger.finance, billing": "finance/ledger,shop/billing", "billing": "shop/billing"} {
		c.annotate(t, podsOf("shop").Path+"/p", text)
		serverstest.Await(t, "the calls of "+text, func() bool {
			all := f.Stands()
			return len(all) == 1 && all[0].Calls == want
		})
	}
}

func TestServiceAccountsOfRealPods(t *testing.T) {
	c := theCluster(t)
	config := c.config(t, "zones")
	config.ServiceAccounts = true
	c.put(t, slicesOf("shop").Path, "a", sliceOf("shop", "a", "orders-dapr", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")))
	c.put(t, podsOf("shop").Path, "p", map[string]any{
		"metadata": map[string]any{"name": "p", "namespace": "shop", "labels": map[string]string{"dapr.io/sidecar-injected": "true"}},
		"spec":     map[string]any{"serviceAccountName": "orders", "containers": []any{map[string]any{"name": "app", "image": "example.invalid/app"}}},
	})
	f := instancestest.Follow(t, newSource(t, config))
	serverstest.Await(t, "the service account", func() bool {
		all := f.Stands()
		return len(all) == 1 && all[0].Account == "orders"
	})
}

func TestOnlyTheNamespacesThatAreListedAreRead(t *testing.T) {
	c := theCluster(t)
	for n, ns := range []string{"shop", "finance"} {
		c.put(t, slicesOf(ns).Path, "a", sliceOf(ns, "a", "orders-dapr", "IPv4", 50002, endpointOf("p", fmt.Sprintf("10.0.0.%d", n+1), "ready")))
	}
	for want, namespaces := range map[int][]string{1: {"finance"}, 2: {"finance", "shop"}} {
		config := c.config(t, "service")
		config.Namespaces = namespaces
		f := instancestest.Follow(t, newSource(t, config))
		serverstest.Await(t, "the full set", func() bool { return f.Status().Ready })
		if got := f.Status().Instances; got != want {
			t.Errorf("of %v there are %d instances, want %d", namespaces, got, want)
		}
	}
}

func TestAMissingRoleIsNamed(t *testing.T) {
	c := theCluster(t)
	config := c.config(t, "service")
	config.ZoneLabel = "rack"
	for want, config := range map[string]Config{
		`the verb "list" on endpointslices.discovery.k8s.io, as the role isthmus-instances in`: c.config(t, "nobody"),
		`the verb "list" on pods, as the role isthmus-instances-pods in`:                       config,
	} {
		f := instancestest.Follow(t, newSource(t, config))
		serverstest.Await(t, "an error", func() bool { return f.Status().Err != nil })
		if err := f.Status().Err; !errors.Is(err, configstore.ErrDenied) || !strings.Contains(err.Error(), want) || f.Status().Ready {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// fake is a source on a server that is none of Kubernetes, or can't be had to do what a
// test needs.
func fake(t *testing.T, h http.HandlerFunc) *Source {
	t.Helper()
	return newSource(t, Config{Kubeconfig: serverstest.FakeKubernetes(t, h)})
}

const emptyList = `{"metadata":{"resourceVersion":"7"},"items":[]}`

// TestAServerThatForgets is read anew without a failure, unless it forgets at once: then
// it is not listed in a hot loop.
func TestAServerThatForgets(t *testing.T) {
	var lists atomic.Int32
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			lists.Add(1)
			fmt.Fprint(w, emptyList)
			return
		}
		if lists.Load() == 1 {
			w.(http.Flusher).Flush()
			time.Sleep(1500 * time.Millisecond)
		}
		fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}`)
	})
	fulls, begin := 0, time.Now()
	err := s.Watch(t.Context(), func(c instances.Change) error {
		if c.Full {
			fulls++
		}
		return nil
	})
	took := time.Since(begin) // each that it remembered for long enough lets there be another
	if err == nil || !strings.Contains(err.Error(), "too old resource version") || fulls < 2 || fulls > 1+int(took/longEnough) {
		t.Errorf("after %d full sets in %s Watch ended with %v; want two, and the server's own words", fulls, took, err)
	}
}

// TestAProxyThatEndsEveryWatchAtOnce is not asked in a hot loop, and bookmarks are heeded.
func TestAProxyThatEndsEveryWatchAtOnce(t *testing.T) {
	const enough = 3
	var watches atomic.Int32
	var last atomic.Value
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, emptyList)
			return
		}
		last.Store(r.URL.Query().Get("resourceVersion"))
		if watches.Add(1) == enough {
			cancel()
		}
		fmt.Fprint(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`)
	})
	_ = s.Watch(ctx, func(instances.Change) error { return nil })
	if took := time.Since(begin); watches.Load() < enough || took < time.Second || last.Load() != "9" {
		t.Errorf("%d watches in %s, the last from %v; want one a second, from the bookmark", watches.Load(), took, last.Load())
	}
}

func TestSomethingElseThanAnAPIServer(t *testing.T) {
	for want, answer := range map[string]string{"the answer is not JSON": "<html>log in</html>", "is this an API server?": "{}", "has no name": `{"metadata":{"resourceVersion":"7"},"items":[{}]}`} {
		s := fake(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
		err := s.Watch(t.Context(), func(instances.Change) error { t.Error("it said something"); return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
