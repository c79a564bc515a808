package actors

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Whoever reaches the bridge's port and is not its sidecar is refused, whatever else they send.
func TestOnlyTheSidecarIsBelieved(t *testing.T) {
	for _, path := range []string{"GET /dapr/config", "PUT /actors/Cart/42/method/add", "DELETE /actors/Cart/42", "POST " + bridgePath, "POST /healthz/.." + bridgePath, "GET /nothing"} {
		for what, token := range map[string][]string{
			"none": nil, "an empty one": {""}, "another": {"guessed"}, "a part": {"of the"}, "more than it": {"of the app "},
			"the sidecar's own": {"of the API"}, "another before it": {"guessed", "of the app"},
		} {
			b := behind(t, westView, func(http.ResponseWriter, *http.Request) { t.Errorf("%s, %s: the sidecar is asked", path, what) })
			verb, to, _ := strings.Cut(path, " ")
			r := request(verb, to, identity.CallerHeader, spiffe+"checkout", callerHeader, "shop/checkout", typeHeader, "Cart", idHeader, "42", methodHeader, "add")
			r.Header[tokenHeader] = token
			w := httptest.NewRecorder()
			b.Handler().ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized || b.announced.Load() != nil {
				t.Errorf("%s with %s: %d %s", path, what, w.Code, w.Body)
			}
		}
	}
}

// What the bridge asks its sidecar has the sidecar's token, and no other hop gets either.
func TestTokensStayBetweenBridgeAndSidecar(t *testing.T) {
	for _, c := range []struct {
		at *catalog.ActorView
		r  *http.Request
	}{
		{westView, request("PUT", "/actors/Cart/42/method/add", identity.CallerHeader, spiffe+"checkout")},
		{eastView, request("POST", bridgePath, identity.CallerHeader, spiffe+"isthmus-actors-west", callerHeader, "shop/checkout", typeHeader, "Cart", idHeader, "42", methodHeader, "add")},
	} {
		b := behind(t, c.at, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header[tokenHeader]; len(got) != 1 || got[0] != "of the API" {
				t.Errorf("the sidecar of %s gets %q", c.at.Cluster, got)
			}
			w.Header().Set(answerHeader, "actor")
			w.Header().Set(tokenHeader, "of somebody")
		})
		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, c.r)
		if w.Code != http.StatusOK || w.Header().Get(tokenHeader) != "" {
			t.Errorf("%s answers %d with %v", c.at.Cluster, w.Code, w.Header())
		}
	}
}

func TestTokensOfABridge(t *testing.T) {
	t.Setenv(appToken, "")
	t.Setenv(apiToken, "given")
	if _, err := TokensFor(false); err == nil || !strings.Contains(err.Error(), "dapr.io/app-token-secret") {
		t.Errorf("a sidecar of somebody else without %s: %v", appToken, err)
	}
	made, err := TokensFor(true)
	if err != nil || len(made.app) < 26 || made.api != "given" {
		t.Errorf("%v, with %d letters", err, len(made.app))
	}
	t.Setenv(appToken, "given, too")
	if got, err := TokensFor(false); err != nil || got != (Tokens{"given, too", "given"}) {
		t.Errorf("both given: %v", err)
	}
	// A child has them in its environment, and not where everybody can read them.
	file := filepath.Join(t.TempDir(), "child")
	child := NewChild([]string{"sh", "-c", "echo \"$" + appToken + " $" + apiToken + "\" > " + file + "; tr '\\0' ' ' < /proc/$$/cmdline >> " + file}, slog.New(slog.DiscardHandler))
	if err := child.live(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), made.app+" "+made.api+"\n") || strings.Count(string(text), made.app) != 1 {
		t.Errorf("the child has %s: %v", text, err)
	}
}

// A sidecar that somebody else starts has to refuse calls without the token.
func TestASidecarThatTakesEverybodysCallsEndsTheBridge(t *testing.T) {
	for code, want := range map[int]string{http.StatusOK: "takes calls without a token", http.StatusUnauthorized: ""} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		err := refusesOthers(t.Context(), strings.TrimPrefix(server.URL, "http://"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", code, err)
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}
