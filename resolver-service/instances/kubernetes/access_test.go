package kubernetes

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/sandbox/servers"
)

// stood is a Feed at work on a source, and what stands by it.
type stood struct {
	feed *instances.Feed

	mu  sync.Mutex
	all map[topology.InstanceKey]catalog.Instance
}

// Apply is that of instances.Applier.
func (s *stood) Apply(_ context.Context, c topology.Change) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range c.Instances {
		if i.Full {
			clear(s.all)
		}
		for _, key := range i.Delete {
			delete(s.all, key)
		}
		for _, p := range i.Put {
			s.all[topology.InstanceKey{App: p.App, ID: p.ID}] = p
		}
	}
	return 1, nil
}

// zone is that of the one instance; empty if there is another number of them.
func (s *stood) zone() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 1 {
		for _, i := range s.all {
			return i.Zone
		}
	}
	return ""
}

func (s *stood) status() instances.Status {
	all, _ := s.feed.Status().Load()
	return all[0]
}

func follow(t testing.TB, source instances.Source) *stood {
	t.Helper()
	s := &stood{all: map[topology.InstanceKey]catalog.Instance{}}
	var err error
	if s.feed, err = instances.NewFeed(instances.FeedConfig{Sources: []instances.Source{source}}, s, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = s.feed.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	return s
}

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not there: %s", what)
		}
	}
}

func TestZonesOfRealPods(t *testing.T) {
	c := theCluster(t)
	config := c.config(t, zonesToken)
	config.ZoneLabel = "rack"
	c.put(t, slicesOf("shop").Path, "a", sliceOf("shop", "a", "orders-dapr", "IPv4", 50002, endpointOf("p", "10.0.0.1", "ready")))
	c.pod(t, "shop", "p", map[string]string{"rack": "r1"})
	f := follow(t, newSource(t, config))
	await(t, "the zone of the label", func() bool { return f.zone() == "r1" })
	c.pod(t, "shop", "p", map[string]string{"rack": "r2"})
	await(t, "another label", func() bool { return f.zone() == "r2" })
	c.remove(t, podsOf("shop").Path, "p")
	await(t, "the zone of the node", func() bool { return f.zone() == "zone-of-node" })
	if s := f.status(); s.Err != nil {
		t.Error(s.Err)
	}
}

func TestOnlyTheNamespacesThatAreListedAreRead(t *testing.T) {
	c := theCluster(t)
	for n, ns := range []string{"shop", "finance"} {
		c.put(t, slicesOf(ns).Path, "a", sliceOf(ns, "a", "orders-dapr", "IPv4", 50002, endpointOf("p", fmt.Sprintf("10.0.0.%d", n+1), "ready")))
	}
	for want, namespaces := range map[int][]string{1: {"finance"}, 2: {"finance", "shop"}} {
		config := c.config(t, serviceToken)
		config.Namespaces = namespaces
		f := follow(t, newSource(t, config))
		await(t, "the full set", func() bool { return f.status().Ready })
		if got := f.status().Instances; got != want {
			t.Errorf("of %v there are %d instances, want %d", namespaces, got, want)
		}
	}
}

func TestAMissingRoleIsNamed(t *testing.T) {
	c := theCluster(t)
	config := c.config(t, serviceToken)
	config.ZoneLabel = "rack"
	for want, config := range map[string]Config{
		`the verb "list" on endpointslices.discovery.k8s.io, as the role isthmus-instances in`: c.config(t, nobodyToken),
		`the verb "list" on pods, as the role isthmus-instances-pods in`:                       config,
	} {
		f := follow(t, newSource(t, config))
		await(t, "an error", func() bool { return f.status().Err != nil })
		if err := f.status().Err; !errors.Is(err, configstore.ErrDenied) || !strings.Contains(err.Error(), want) || f.status().Ready {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// fake is a source on a server that is none of Kubernetes, or can't be had to do what a
// test needs.
func fake(t *testing.T, h http.HandlerFunc) *Source {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca, path := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, text, 0o600), servers.Kubeconfig(path, server.Listener.Addr().String(), ca, "token")); err != nil {
		t.Fatal(err)
	}
	return newSource(t, Config{Kubeconfig: path})
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
	fulls := 0
	err := s.Watch(t.Context(), func(c instances.Change) error {
		if c.Full {
			fulls++
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "too old resource version") || fulls != 2 {
		t.Errorf("after %d full sets Watch ended with %v; want two, and the server's own words", fulls, err)
	}
}

// TestAProxyThatEndsEveryWatchAtOnce is not asked in a hot loop, and bookmarks are heeded.
func TestAProxyThatEndsEveryWatchAtOnce(t *testing.T) {
	var watches atomic.Int32
	var last atomic.Value
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, emptyList)
			return
		}
		watches.Add(1)
		last.Store(r.URL.Query().Get("resourceVersion"))
		fmt.Fprint(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	_ = s.Watch(ctx, func(instances.Change) error { return nil })
	if n := watches.Load(); n < 2 || n > 4 || last.Load() != "9" {
		t.Errorf("%d watches in 2.5 s, the last from %v; want one a second, from the bookmark", n, last.Load())
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
