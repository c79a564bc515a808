package actors

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// behind is a bridge whose sidecar is a server that answers as a sidecar of Dapr 1.18 does.
func behind(t testing.TB, view *catalog.ActorView, sidecar http.HandlerFunc) *Bridge {
	t.Helper()
	server := httptest.NewServer(sidecar)
	t.Cleanup(server.Close)
	b, err := New(&Config{
		Cluster: view.Cluster, Namespace: view.Namespace, Daprd: strings.TrimPrefix(server.URL, "http://"),
		Identity: identitytest.NewCA(t).Config(catalog.BridgeApp(view.Namespace, view.Cluster)),
	}, Injected{}, Tokens{app: "of the app", api: "of the API"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.identity.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.client.CloseIdleConnections)
	b.view.Store(view)
	b.local.Store(map[string]string{})
	return b
}

var westView = &catalog.ActorView{Namespace: "shop", Cluster: "west", Domains: []string{"west.example"}, Imports: []catalog.ActorImport{{
	Type: "Cart", Owner: "east", Callers: []string{"checkout"}, Allow: []catalog.Allow{{Cluster: "west"}},
}}}

var eastView = &catalog.ActorView{Namespace: "shop", Cluster: "east", Clusters: []catalog.ActorCluster{{Name: "west", Domain: "public"}},
	Owned: []catalog.OwnedActors{{Type: "Cart", Allow: []catalog.Allow{{Cluster: "west", App: "checkout"}}}}}

const spiffe = "spiffe://public/ns/shop/"

func request(verb, path string, header ...string) *http.Request {
	r := httptest.NewRequest(verb, path, strings.NewReader("{}"))
	r.Header.Set(tokenHeader, "of the app")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// TestACallPassesOneBridgeOnEachSide has calls come that a bridge must not pass on.
func TestACallPassesOneBridgeOnEachSide(t *testing.T) {
	for _, c := range []struct {
		name   string
		header []string
		code   int
		says   string
	}{
		{"by an app that may", []string{identity.CallerHeader, spiffe + "checkout"}, 200, ""},
		{"by an app that may not", []string{identity.CallerHeader, spiffe + "mallory"}, 403, "ERR_ISTHMUS_DENIED"},
		{"by one of a trust domain that the service names", []string{identity.CallerHeader, "spiffe://west.example/ns/shop/checkout"}, 200, ""},
		{"by one of another trust domain", []string{identity.CallerHeader, "spiffe://north.example/ns/shop/checkout"}, 403, "shop/checkout of trust domain north.example is an app of another cluster"},
		{"by the bridge of another trust domain", []string{identity.CallerHeader, "spiffe://north.example/ns/shop/isthmus-actors-north"}, 403, "is an app of another cluster"},
		{"by one of another namespace", []string{identity.CallerHeader, "spiffe://public/ns/evil/checkout"}, 403, "evil/checkout is not of namespace shop"},
		{"by one of both", []string{identity.CallerHeader, "spiffe://north.example/ns/evil/checkout"}, 403, "is an app of another cluster"},
		{"by nobody that mTLS knows", []string{callerHeader, "shop/checkout"}, 403, "does not say who calls"},
		{"by a name that is none", []string{identity.CallerHeader, "checkout"}, 403, "does not say who calls"},
		{"that has passed a pair of bridges", []string{identity.CallerHeader, spiffe + "checkout", bridgedHeader, "north"}, 503, "a call passes one pair of bridges"},
	} {
		t.Run(c.name, func(t *testing.T) {
			passed := 0
			b := behind(t, westView, func(w http.ResponseWriter, r *http.Request) {
				passed++
				if r.URL.Path != "/v1.0/invoke/isthmus-actors-east/method/isthmus/actors" || r.Header.Get(identity.CallerHeader) != "" || r.Header.Get(callerHeader) != "shop/checkout" {
					t.Errorf("the sidecar is asked for %s with %v", r.URL.Path, r.Header)
				}
				w.Header().Set(answerHeader, "actor")
			})
			w := httptest.NewRecorder()
			b.Handler().ServeHTTP(w, request("PUT", "/actors/Cart/42/method/add", c.header...))
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || (passed == 1) != (c.code == 200) {
				t.Errorf("%d %s, passed on %d times; want %d %s", w.Code, w.Body, passed, c.code, c.says)
			}
		})
	}
}

// TestOnlyAnotherClustersBridgeIsTakenIn holds the owner's side to the caller's certificate.
func TestOnlyAnotherClustersBridgeIsTakenIn(t *testing.T) {
	for _, c := range []struct {
		name, by, caller string
		code             int
		says             string
	}{
		{"the bridge of west for an app that may", spiffe + "isthmus-actors-west", "shop/checkout", 200, ""},
		{"the bridge of west for one that may not", spiffe + "isthmus-actors-west", "shop/mallory", 403, "add it to spec.allow"},
		{"the bridge of west for one of another namespace", spiffe + "isthmus-actors-west", "evil/checkout", 403, "only apps of a type's own namespace"},
		{"an app that says it speaks for another", spiffe + "mallory", "shop/checkout", 403, "is not the bridge of another cluster"},
		{"a bridge of another trust domain", "spiffe://elsewhere/ns/shop/isthmus-actors-west", "shop/checkout", 403, "is not of the trust domain"},
		{"a bridge of another namespace", "spiffe://public/ns/finance/isthmus-actors-west", "shop/checkout", 403, "is not the bridge of another cluster"},
		{"nobody", "", "shop/checkout", 403, "does not say who calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			made := 0
			b := behind(t, eastView, func(_ http.ResponseWriter, r *http.Request) {
				made++
				if r.URL.EscapedPath() != "/v1.0/actors/Cart/a%20b:%C3%BC/method/add" || r.Method != http.MethodPut || r.Header.Get(bridgedHeader) != "west" || r.URL.RawQuery != "x=1" {
					t.Errorf("the sidecar is asked for %s %s with %v", r.Method, r.URL, r.Header)
				}
			})
			r := request("POST", bridgePath+"?x=1", typeHeader, "Cart", idHeader, url.PathEscape("a b:ü"), methodHeader, "add", callerHeader, c.caller)
			if c.by != "" {
				r.Header.Set(identity.CallerHeader, c.by)
			}
			w := httptest.NewRecorder()
			b.Handler().ServeHTTP(w, r)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || (made == 1) != (c.code == 200) {
				t.Errorf("%d %s, made %d times; want %d %s", w.Code, w.Body, made, c.code, c.says)
			}
		})
	}
}

// TestErrorsAreTheActorsOwn has the owner's sidecar tell of errors as Dapr does.
func TestErrorsAreTheActorsOwn(t *testing.T) {
	for _, c := range []struct {
		name, message string
		code          int
		body          string
	}{
		{"an answer of the app", "error invoke actor method: error from actor service: (418) no tea", 418, "no tea"},
		{"from another sidecar", "error invoke actor method: rpc error: code = Internal desc = error invoke actor method: error from actor service: (500) {\"a\":\n1}", 500, "{\"a\":\n1}"},
		{"a method that there is not", "error invoke actor method: actor method not found: actors/Cart/1/method/x", 404, ""},
		{"an error of Dapr", "error invoke actor method: did not find address for actor Cart/1", 503, "did not find address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := behind(t, eastView, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				_ = json.NewEncoder(w).Encode(map[string]string{"errorCode": "ERR_ACTOR_INVOKE_METHOD", "message": c.message})
			})
			w := httptest.NewRecorder()
			b.Handler().ServeHTTP(w, request("POST", bridgePath, typeHeader, "Cart", idHeader, "1", methodHeader, "x", callerHeader, "shop/checkout", identity.CallerHeader, spiffe+"isthmus-actors-west"))
			exact := c.code != 503 && w.Body.String() != c.body
			if w.Code != c.code || exact || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, c.code, c.body)
			}
		})
	}
}

// TestATypeThatIsHostedHereIsLeftAlone holds what the sidecar is told to the placement service's state.
func TestATypeThatIsHostedHereIsLeftAlone(t *testing.T) {
	text := `{"tables":{"shop":{"hosts":[{"name":"10.0.0.5:50002","id":"carts","entities":["Cart","Other"]},
		{"name":"10.0.0.6:50002","id":"isthmus-actors-west","entities":["Voucher"]}]},"finance":{"hosts":[{"id":"x","entities":["Voucher"]}]}}}`
	var state placementState
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatal(err)
	}
	view := &catalog.ActorView{Namespace: "shop", Cluster: "west", Imports: []catalog.ActorImport{{Type: "Cart"}, {Type: "Voucher"}}}
	b := behind(t, view, nil)
	b.local.Store(state.hosts("shop", "isthmus-actors-west"))
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, request("GET", "/dapr/config"))
	if !strings.Contains(w.Body.String(), `"entities":["Voucher"]`) {
		t.Errorf("the sidecar is told %s", w.Body)
	}
}

// FuzzCall has the owner's side read whatever a bridge sends. Nothing but a whole call goes on, and to
// no other path than an actor's.
func FuzzCall(f *testing.F) {
	f.Add("Cart", "42", "add", "shop/checkout", spiffe+"isthmus-actors-west")
	f.Add("..", "%2e%2e%2f", "../../shutdown", "/", "spiffe://")
	f.Add("Cart", "..", "..", "shop/checkout", spiffe+"isthmus-actors-west")
	var asked string
	b := behind(f, eastView, func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.EscapedPath() })
	f.Fuzz(func(t *testing.T, typ, id, method, caller, by string) {
		asked = ""
		r := request("POST", bridgePath, typeHeader, typ, idHeader, id, methodHeader, method, callerHeader, caller, identity.CallerHeader, by)
		w := httptest.NewRecorder()
		b.takeIn(w, r)
		_, _ = io.Copy(io.Discard, w.Result().Body)
		if asked != "" && (!strings.HasPrefix(asked, "/v1.0/actors/Cart/") || strings.Contains(asked, "/../")) {
			t.Errorf("the sidecar is asked for %s", asked)
		}
	})
}

// TestABodyPassesWhole has bodies pass in both directions at once, over real connections.
func TestABodyPassesWhole(t *testing.T) {
	b := behind(t, westView, func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set(answerHeader, "actor")
		_, _ = w.Write(text) // the bridge sees what is missing
	})
	bridge := httptest.NewServer(b.Handler())
	defer bridge.Close()
	client := bridge.Client()
	defer client.CloseIdleConnections()
	body := bytes.Repeat([]byte{'x'}, 4096)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range raced.Fewer(1000) {
				req, err := http.NewRequest(http.MethodPut, bridge.URL+"/actors/Cart/42/method/echo", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set(tokenHeader, "of the app")
				req.Header.Set(identity.CallerHeader, spiffe+"checkout")
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || len(text) != len(body) {
					t.Errorf("%s with %d bytes of %d: %v", res.Status, len(text), len(body), err)
					return
				}
			}
		})
	}
	group.Wait()
}
