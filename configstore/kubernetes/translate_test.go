package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// Documents of other standards, as their users write them. Of a TrafficTarget the definitions
// want rules.
const (
	target = `
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: allow, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: orders, namespace: shop}
  sources: [{kind: ServiceAccount, name: checkout, namespace: shop}]
  rules: []
`
	split = `
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: orders, namespace: shop}
spec:
  service: orders
  backends: [{service: orders, weight: 90}, {service: orders-east, weight: %d}]
`
	export = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: orders, namespace: shop}
`
)

// translating is a service over an API server: a store that translates, and what follows it.
type translating struct {
	*cluster
	t    testing.TB
	feed *objects.Feed
	top  *topology.Topology
}

func (c *cluster) translating(t testing.TB, config Config) *translating {
	t.Helper()
	config.Translate = []string{"smi", "mcs"}
	s := openStore(t, config, configstore.Scope{})
	s.lookAgain = 100 * time.Millisecond
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	top := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}, quiet)
	feed := objects.NewFeed(s, top, quiet)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	for _, run := range []func(context.Context) error{top.Run, feed.Run} {
		go func() {
			_ = run(ctx)
			done <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		cancel()
		<-done
		<-done
		_ = s.Close()
	})
	serverstest.Await(t, "the full set", func() bool { return feed.Status().Synced })
	return &translating{c, t, feed, top}
}

// routes are the ways of checkout to orders, with their weights, and the rule.
func (s *translating) routes() string {
	d := s.top.Resolve(catalog.App{Namespace: "shop", ID: "checkout"}, catalog.App{Namespace: "shop", ID: "orders"})
	var all []string
	for _, r := range d.Routes {
		all = append(all, fmt.Sprintf("%s %d", r.Cluster, r.Weight))
	}
	return strings.Join(all, ", ") + " by " + d.Rule
}

func (s *translating) awaitRoutes(want string) {
	s.t.Helper()
	defer func() {
		if got := s.routes(); got != want {
			s.t.Logf("routes are %s; refused is %v", got, s.feed.Status().Refused)
		}
	}()
	serverstest.Await(s.t, "routes "+want, func() bool { return s.routes() == want })
}

func (s *translating) awaitRefused(want string) {
	s.t.Helper()
	serverstest.Await(s.t, "a refusal with "+want, func() bool {
		for _, r := range s.feed.Status().Refused {
			if strings.Contains(r.Where+": "+r.Err.Error(), want) {
				return true
			}
		}
		return false
	})
}

func (s *translating) delete(kind, name string) {
	s.t.Helper()
	if err := s.Kubectl("delete", kind, name, "-n", "shop"); err != nil {
		s.t.Fatal(err)
	}
}

func TestDocumentsOfOtherStandardsAreFollowed(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	c.makeNamespaces(t, "shop")
	c.apply(t, apitest.Object("Cluster", "{name: east}", `{gateways: [{address: gw}]}`))
	s := c.translating(t, c.config(t, "service"))

	// The definitions come while the service runs.
	if err := c.Kubectl("apply", "-f", "testdata/smi.yaml", "-f", "testdata/mcs.yaml"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kubectl("delete", "-f", "testdata/smi.yaml", "-f", "testdata/mcs.yaml"); err != nil {
			t.Error(err)
		}
	})
	if err := c.Kubectl("wait", "--for=condition=established", "crd", "--all", "--timeout=300s"); err != nil {
		t.Fatal(err)
	}
	serverstest.Await(t, "the API server to take TrafficTargets", func() bool {
		_, err := c.Run(target+"---"+fmt.Sprintf(split, 10)+"---"+export, "apply", "-f", "-")
		return err == nil
	})
	rule := "AppEndpoints shop/checkout, spec.endpoints[0] (from TrafficTarget shop/allow, TrafficSplit shop/orders)"
	s.awaitRoutes("west 90, east 10 by " + rule)
	serverstest.Await(t, "the export", func() bool {
		inbound, err := s.top.ResolveFrom(t.Context(), "east", catalog.App{Namespace: "shop", ID: "checkout"}, catalog.App{Namespace: "shop", ID: "orders"})
		return err == nil && inbound.Rule == "AppExport shop/orders (from ServiceExport shop/orders, TrafficTarget shop/allow)"
	})

	c.apply(t, fmt.Sprintf(split, 45))
	s.awaitRoutes("west 90, east 45 by " + rule)

	// What happens while the store is cut off comes when it is back.
	restore := c.Link.Fail(t)
	c.apply(t, fmt.Sprintf(split, 30))
	restore()
	s.awaitRoutes("west 90, east 30 by " + rule)

	// A service that starts has it in its first set: its callers see no more in between.
	if again := c.translating(t, c.config(t, "service")).routes(); again != "west 90, east 30 by "+rule {
		t.Errorf("after a restart: %s", again)
	}

	// A written object stands instead.
	c.apply(t, apitest.Selection("  - app: orders\n"))
	s.awaitRoutes("west 1 by AppEndpoints shop/checkout, spec.endpoints[0] (line 6)")
	s.awaitRefused("AppEndpoints shop/checkout (from TrafficTarget shop/allow, TrafficSplit shop/orders): a written AppEndpoints shop/checkout stands")
	s.delete("appendpoints.isthmus.dev", "checkout")
	s.awaitRoutes("west 90, east 30 by " + rule)

	// A mistake leaves what was there, and is told.
	c.apply(t, strings.Replace(target, "rules: []", "rules: [{kind: HTTPRouteGroup, name: metrics}]", 1))
	s.awaitRefused("spec.rules[0]: HTTPRouteGroup metrics has no equivalent")
	s.awaitRoutes("west 90, east 30 by " + rule)
	c.apply(t, target)

	// A name that is no cluster's.
	c.apply(t, strings.Replace(fmt.Sprintf(split, 30), "orders-east", "orders-v2", 1))
	s.awaitRefused("no Cluster object names the cluster of backend orders-v2")

	s.delete("trafficsplit", "orders")
	s.awaitRoutes("west 1 by AppEndpoints shop/checkout, spec.endpoints[0] (from TrafficTarget shop/allow)")
	s.delete("traffictarget", "allow")
	s.awaitRoutes("west 1 by defaultSelection: local")
	s.delete("serviceexport", "orders")
	serverstest.Await(t, "nothing to be exported", func() bool { return s.feed.Status().Objects == 1 })
	if refused := s.feed.Status().Refused; len(refused) > 0 {
		t.Errorf("refused in the end: %v", refused)
	}
}

// TestADocumentsWatchThatFailsForAMoment: once the watch is open again, nothing is refused.
func TestADocumentsWatchThatFailsForAMoment(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	c.makeNamespaces(t, "shop")
	if err := c.Kubectl("apply", "-f", "testdata/smi.yaml"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kubectl("delete", "-f", "testdata/smi.yaml"); err != nil {
			t.Error(err)
		}
	})
	if err := c.Kubectl("wait", "--for=condition=established", "crd", "--all", "--timeout=300s"); err != nil {
		t.Fatal(err)
	}
	var busy atomic.Bool
	busy.Store(true)
	s := c.translating(t, Config{Kubeconfig: c.refusingWatches(t, "/traffictargets", &busy)})
	s.awaitRefused("traffictargets.access.smi-spec.io: watch at https://127.0.0.1")
	s.awaitRefused("429 Too Many Requests: storage is (re)initializing")
	busy.Store(false)
	serverstest.Await(t, "nothing to be refused", func() bool { return len(s.feed.Status().Refused) == 0 })
	serverstest.Await(t, "the API server to take TrafficTargets", func() bool {
		_, err := c.Run(target, "apply", "-f", "-")
		return err == nil
	})
	s.awaitRoutes("west 1 by AppEndpoints shop/checkout, spec.endpoints[0] (from TrafficTarget shop/allow)")
}

// refusingWatches is the kubeconfig of a way to the API server which, while busy, has watches of
// a path refused as of a definition that was just made.
func (c *cluster) refusingWatches(t *testing.T, path string, busy *atomic.Bool) string {
	t.Helper()
	ca, err := os.ReadFile(c.API.CA())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: c.API.Addr()})
			r.Out.Header.Set("Authorization", "Bearer "+serverstest.TokenOf("service"))
		},
	}
	return serverstest.FakeKubernetes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy.Load() && r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, path) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"kind":"Status","code":429,"reason":"TooManyRequests","message":"storage is (re)initializing"}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
}

func TestNoPermissionForOtherStandards(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	if err := c.Kubectl("apply", "-f", "testdata/smi.yaml"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kubectl("delete", "-f", "testdata/smi.yaml"); err != nil {
			t.Error(err)
		}
	})
	s := c.translating(t, c.config(t, "reader"))
	s.awaitRefused("give the account the verbs list and watch on traffictargets.access.smi-spec.io")
	c.apply(t, apitest.Object("Cluster", "{name: east}", "{network: a}"))
	serverstest.Await(t, "the written objects", func() bool { return s.feed.Status().Objects == 1 })
}
