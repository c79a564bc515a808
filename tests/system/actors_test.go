package system

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// actorHost is an app that hosts actors of one type, and speaks Dapr's protocol for them.
type actorHost struct {
	address   string
	typ       string
	reentrant bool

	running     sync.Map // by actor id: *atomic.Int32, how many calls run
	overlaps    atomic.Int32
	calls       atomic.Int32
	deactivated atomic.Int32
	timers      atomic.Int32
	first, last atomic.Int64                                             // when it was called, in nanoseconds
	back        atomic.Pointer[func(context.Context, http.Header) error] // the method "callback" calls it
}

func startActors(t *testing.T, typ string, reentrant bool) *actorHost {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &actorHost{address: listener.Addr().String(), typ: typ, reentrant: reentrant}
	server := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it is closed below
	}()
	t.Cleanup(func() { server.Close(); <-done })
	return h
}

func (h *actorHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case r.URL.Path == "/dapr/config":
		_ = json.NewEncoder(w).Encode(map[string]any{
			"entities": []string{h.typ}, "actorIdleTimeout": "3s", "reentrancy": map[string]any{"enabled": h.reentrant, "maxStackDepth": 8},
		})
	case len(parts) == 3 && r.Method == http.MethodDelete:
		h.deactivated.Add(1)
	case len(parts) == 6 && parts[4] == "timer":
		h.timers.Add(1)
	case len(parts) == 5 && parts[0] == "actors" && r.Method == http.MethodPut:
		h.method(w, r, parts[2], parts[4])
	default:
		http.NotFound(w, r)
	}
}

// method makes one call of an actor. Two at a time of one actor are an overlap, unless one is within
// the other.
func (h *actorHost) method(w http.ResponseWriter, r *http.Request, id, method string) {
	h.calls.Add(1)
	h.first.CompareAndSwap(0, time.Now().UnixNano())
	defer func() { h.last.Store(time.Now().UnixNano()) }()
	now, _ := h.running.LoadOrStore(id, new(atomic.Int32))
	if n := now.(*atomic.Int32); n.Add(1) > 1 && !h.reentrant {
		h.overlaps.Add(1)
	}
	defer now.(*atomic.Int32).Add(-1)
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Actor", h.typ+"/"+id)
	switch method {
	case "echo":
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write(body)
	case "headers":
		_ = json.NewEncoder(w).Encode(r.Header)
	case "slow":
		time.Sleep(20 * time.Millisecond)
	case "fail":
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("no tea for " + id))
	case "throw": // as .NET's SDK tells of an exception
		w.Header().Set("X-Daprerrorresponseheader", "true")
		_, _ = w.Write([]byte("thrown by " + id))
	case "callback":
		if err := (*h.back.Load())(r.Context(), r.Header); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(err.Error()))
		}
	default:
		http.NotFound(w, r)
	}
}

// actorCall is an answer of the actor API.
type actorCall struct {
	code   int
	body   string
	header http.Header
}

// callActor calls an actor by a sidecar's actor API, as SDKs do.
func callActor(ctx context.Context, by *sandbox.Daprd, actor, method string, body []byte, header http.Header) (actorCall, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, by.ActorURL(actor, method), bytes.NewReader(body))
	if err != nil {
		return actorCall{}, err
	}
	for name := range header {
		req.Header[name] = header[name]
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return actorCall{}, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return actorCall{res.StatusCode, string(answer), res.Header}, err
}

// actorMesh is two clusters with placement services and bridges for one namespace. East owns a type
// that an app there hosts.
type actorMesh struct {
	*mesh
	namespace  string
	carts      *actorHost
	host       *sandbox.Sidecar // of the carts, in east
	checkout   *sandbox.Sidecar // in west: it may call them
	neighbour  *sandbox.Sidecar // in east
	bridge     *sandbox.Bridge  // of west
	eastBridge *sandbox.Bridge
}

const cartsOfEast = `apiVersion: isthmus.dev/v1alpha1
kind: ActorType
metadata: {namespace: shop, name: cart}
spec:
  type: Cart
  owner: east
  allow:
  - {cluster: west, app: checkout}
`

const callsCarts = `apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: checkout}
spec:
  endpoints: []
  actors:
  - {type: Cart}
`

func startActorMesh(t *testing.T, reentrant bool) *actorMesh {
	t.Helper()
	programstest.Need(t, "placement")
	m := &actorMesh{mesh: ownMesh(t, meshOptions{}), namespace: "shop", carts: startActors(t, "Cart", reentrant)}
	for _, c := range []*sandbox.Cluster{m.west, m.east} {
		if _, err := c.Placement(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	m.apply(t, m.east, cartsOfEast)
	m.apply(t, m.west, callsCarts, strings.Replace(callsCarts, "checkout", "mallory", 1))
	m.host = m.sidecar(t, m.east, sandbox.SidecarOptions{App: m.app("carts"), AppAddress: m.carts.address, Caller: true, Component: asks})
	m.eastBridge, m.bridge = m.startBridge(t, m.east, ""), m.startBridge(t, m.west, "")
	m.neighbour = m.sidecar(t, m.east, sandbox.SidecarOptions{App: m.app("neighbour")})
	m.checkout = m.sidecar(t, m.west, sandbox.SidecarOptions{App: m.app("checkout")})
	m.reach(t, m.checkout.Daprd, "Cart/first")
	return m
}

func (m *actorMesh) app(id string) catalog.App { return catalog.App{Namespace: m.namespace, ID: id} }

func (m *actorMesh) startBridge(t *testing.T, c *sandbox.Cluster, instance string) *sandbox.Bridge {
	t.Helper()
	b, err := c.Bridge(meshtest.Within(t, meshtest.Patience), m.namespace, instance)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", b.Name(), b.Tail(25))
		}
	})
	return b
}

// reach waits until an actor answers a sidecar's call.
func (m *actorMesh) reach(t *testing.T, by *sandbox.Daprd, actor string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		got, err := callActor(meshtest.Within(t, meshtest.Patience), by, actor, "echo", []byte("hello"), nil)
		if err == nil && (got.code != 200 || got.body != "hello") {
			err = fmt.Errorf("%s answers %d %q", actor, got.code, got.body)
		}
		return err
	})
}

// TestAnActorIsCalledAcrossClusters has one app call another cluster's actors as it would its own.
func TestAnActorIsCalledAcrossClusters(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	call := func(by *sandbox.Sidecar, actor, method string, body []byte, header http.Header) actorCall {
		t.Helper()
		got, err := callActor(meshtest.Within(t, meshtest.Patience), by.Daprd, actor, method, body, header)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	t.Run("answers are those that a caller in the owner cluster gets", func(t *testing.T) {
		for _, c := range []struct {
			name, actor, method string
			body                []byte
		}{
			{"an answer", "Cart/1", "echo", []byte("hello")},
			{"no body", "Cart/1", "echo", nil},
			{"a body of 1 MiB", "Cart/1", "echo", bytes.Repeat([]byte("x"), 1<<20)},
			{"a body at Dapr's limit, 4 MiB with its headers", "Cart/1", "echo", bytes.Repeat([]byte("x"), 4<<20-4<<10)},
			{"an id with a space, a colon and a letter beyond ASCII", "Cart/a%20b:%C3%BC", "echo", []byte("hello")},
			{"an error of the actor", "Cart/1", "fail", nil},
			{"an error with its body", "Cart/1", "throw", nil},
			{"no such method", "Cart/1", "nothing", nil},
			{"a body beyond Dapr's limit", "Cart/1", "echo", bytes.Repeat([]byte("x"), 5<<20)},
		} {
			there, here := call(m.neighbour, c.actor, c.method, c.body, nil), call(m.checkout, c.actor, c.method, c.body, nil)
			short := func(s string) string { return s[:min(len(s), 300)] }
			if c.name == "a body beyond Dapr's limit" {
				if there.code == 200 || here.code == 200 {
					t.Errorf("%s: %d in the owner cluster and %d from another, want errors", c.name, there.code, here.code)
				}
				continue
			}
			if c.method == "echo" && there.code != 200 {
				t.Errorf("%s: %d %q in the owner cluster", c.name, there.code, short(there.body))
			}
			if there.code != here.code || there.body != here.body || there.header.Get("X-Actor") != here.header.Get("X-Actor") {
				t.Errorf("%s: in the owner cluster %d %q by %q,\nfrom another %d %q by %q", c.name, there.code, short(there.body), there.header.Get("X-Actor"),
					here.code, short(here.body), here.header.Get("X-Actor"))
			}
		}
	})
	headers := func(t *testing.T, by *sandbox.Sidecar, sent http.Header) (header http.Header) {
		t.Helper()
		got := call(by, "Cart/1", "headers", nil, sent)
		if err := json.Unmarshal([]byte(got.body), &header); err != nil {
			t.Fatalf("%v: %s", err, got.body)
		}
		return header
	}
	t.Run("headers go along, and nobody forges who calls", func(t *testing.T) {
		header := headers(t, m.checkout, http.Header{"X-Mine": {"7"}, "Isthmus-Actor-Caller": {"shop/forged"}, "Isthmus-Caller": {"spiffe://public/ns/shop/forged"}})
		bridge := described(m.app("isthmus-actors-east"), "east", sandbox.AppTrustDomain)
		if header.Get("X-Mine") != "7" || header.Get("Isthmus-Actor-Caller") != "shop/checkout" || header.Get("Isthmus-Actor-Bridged") != "west" || header.Get("Isthmus-Caller") != bridge {
			t.Errorf("the actor got %v", header)
		}
	})
	t.Run("a trace goes on, with a span of each bridge", func(t *testing.T) {
		const id = "4bf92f3577b34da6a3ce929d0e0e4736"
		if header := headers(t, m.checkout, http.Header{"Traceparent": {"00-" + id + "-00f067aa0ba902b7-01"}}); !strings.Contains(header.Get("Traceparent"), id) {
			t.Errorf("the actor got the trace %q, want %s", header.Get("Traceparent"), id)
		}
		var west, east collector.Span
		_, err := m.traces.Wait(meshtest.Within(t, meshtest.Patience), id, func(spans []collector.Span) bool {
			for _, s := range spans {
				switch s.Name + " " + s.Attributes["k8s.cluster.name"] {
				case "actor out west":
					west = s
				case "actor in east":
					east = s
				}
			}
			return west.ID != "" && east.ID != ""
		})
		if err != nil || east.Parent != west.ID || west.Parent == "" || west.Attributes["isthmus.actor.type"] != "Cart" || len(west.Events) != 1 || west.Events[0].Attributes["isthmus.cluster"] != "east" {
			t.Errorf("%v: west's span is %+v, and east's %+v", err, west, east)
		}
	})
	t.Run("a caller in the owner cluster meets no bridge", func(t *testing.T) {
		for name := range headers(t, m.neighbour, nil) {
			if strings.HasPrefix(name, "Isthmus-Actor-") {
				t.Errorf("the actor got %s", name)
			}
		}
	})
	t.Run("one call of an actor at a time, from wherever", func(t *testing.T) {
		var wg sync.WaitGroup
		before := m.carts.calls.Load()
		for i := range 40 {
			by := []*sandbox.Sidecar{m.checkout, m.neighbour}[i%2]
			wg.Go(func() {
				if got, err := callActor(t.Context(), by.Daprd, "Cart/turns", "slow", nil, nil); err != nil || got.code != 200 {
					t.Errorf("a call from %s: %d %s, %v", by.App, got.code, got.body, err)
				}
			})
		}
		wg.Wait()
		if calls, overlaps := m.carts.calls.Load()-before, m.carts.overlaps.Load(); calls != 40 || overlaps != 0 {
			t.Errorf("%d calls with %d overlaps, want 40 and none", calls, overlaps)
		}
	})
	t.Run("an app that the owner does not allow is refused", func(t *testing.T) {
		mallory := m.sidecar(t, m.west, sandbox.SidecarOptions{App: m.app("mallory")})
		before := m.carts.calls.Load()
		got := call(mallory, "Cart/1", "echo", nil, http.Header{"Isthmus-Actor-Caller": {"shop/checkout"}, "Isthmus-Caller": {"spiffe://public/ns/shop/checkout"}})
		if got.code == 200 || !strings.Contains(got.body, "ERR_ISTHMUS_DENIED") || m.carts.calls.Load() != before {
			t.Errorf("mallory got %d %s", got.code, got.body)
		}
		out, _, err := m.isthmus(t, m.west, "", "explain", "--from", "shop/mallory", "--actor", "Cart/1")
		if err == nil || !strings.Contains(out, "denied") || !strings.Contains(out, "does not allow shop/mallory") {
			t.Errorf("explain says %v: %s", err, out)
		}
	})
	t.Run("explain says where a call goes", func(t *testing.T) {
		out, errs, err := m.isthmus(t, m.west, "", "explain", "--from", "shop/checkout", "--actor", "Cart/42")
		if err != nil || !strings.Contains(out, "cluster east owns the actor type Cart") || !strings.Contains(out, "isthmus-actors-east.shop.east.isthmus.internal") {
			t.Errorf("explain says %v: %s%s", err, out, errs)
		}
		if out, _, err := m.isthmus(t, m.east, "", "explain", "--from", "shop/neighbour", "--actor", "Cart/42"); err != nil || !strings.Contains(out, "without a bridge") {
			t.Errorf("in the owner cluster explain says %v: %s", err, out)
		}
	})
	t.Run("a reminder from the calling side is refused by Dapr", func(t *testing.T) {
		res, err := http.Post("http://"+m.checkout.HTTP+"/v1.0/actors/Cart/1/reminders/daily", "application/json", strings.NewReader(`{"dueTime":"1h"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "only possible on hosted actor types") {
			t.Errorf("%d %s", res.StatusCode, body)
		}
	})
	t.Run("timers and idle actors are the owner's", func(t *testing.T) {
		res, err := http.Post("http://"+m.host.HTTP+"/v1.0/actors/Cart/1/timers/tick", "application/json", strings.NewReader(`{"dueTime":"10ms"}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if m.carts.timers.Load() == 0 || m.carts.deactivated.Load() == 0 {
				return fmt.Errorf("%d timers and %d deactivations, want some; the timer was answered with %s", m.carts.timers.Load(), m.carts.deactivated.Load(), res.Status)
			}
			return nil
		})
	})
}
