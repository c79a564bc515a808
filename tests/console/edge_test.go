package console

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/console/browser"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// edge is a service whose console people enter by a real provider.
type edge struct {
	t       *testing.T
	cluster *sandbox.Cluster
	url     string
	dex     *servers.Dex
	browser *browser.Browser
}

// newEdge starts the service as docs/how-to/console.md says, for people of startDex.
func newEdge(t *testing.T) *edge {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{t: t, url: fmt.Sprintf("https://console.example:%d", port)}
	e.dex = startDex(t, servers.DexOptions{}, e.url)
	s, err := sandbox.New(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Server("console.example")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{
		"tls.crt": slices.Concat(cert, authority.Anchors()), "tls.key": key, "secret": []byte(secret), "dex.crt": e.dex.Anchors(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	e.cluster, err = s.Cluster(meshtest.Within(t, meshtest.Patience), sandbox.ClusterOptions{
		Name: "west", Authority: authority, NoSentry: true, Listen: map[string]any{"console": fmt.Sprintf("127.0.0.1:%d", port)},
		Settings: map[string]any{"console": map[string]any{
			"url": e.url, "tls": map[string]any{"cert": file("tls.crt"), "key": file("tls.key")},
			"oidc": map[string]any{
				"issuer": e.dex.Issuer(), "clientID": consoleID, "clientSecret": map[string]any{"file": file("secret")}, "ca": file("dex.crt"),
				"groups": map[string]any{"read": []string{"all"}, "write": []string{"sre"}, "link": []string{"admins"}},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.browser = browser.Start(t, browser.Options{Trust: slices.Concat(authority.Anchors(), e.dex.Anchors()), Hosts: map[string]string{"console.example": "127.0.0.1"}})
	return e
}

// enter signs a person in.
func (e *edge) enter(person servers.DexPerson) *browser.Page {
	e.t.Helper()
	p := e.browser.Page(e.t)
	p.Open(e.url)
	p.Fill("Email Address", person.Email)
	p.Fill("Password", person.Password)
	p.Click("Login")
	p.Await("Overview")
	p.Await(person.Email)
	return p
}

// post sends a form of the page's session, as a script of the page itself would, and returns the status.
func post(p *browser.Page, path string, form ...string) int {
	fields := ""
	for i := 0; i < len(form); i += 2 {
		fields += fmt.Sprintf("f.set(%q, %q);", form[i], form[i+1])
	}
	return browser.Evaluate[int](p, `(async () => {
		const f = new URLSearchParams(); f.set('token', document.querySelector('input[name=token]').value); `+fields+`
		return (await fetch(`+fmt.Sprintf("%q", path)+`, {method: 'POST', body: f})).status })()`)
}

// TestATeamsConsole of a real service: who may only read sees all and changes nothing, and what others
// write is known to be theirs.
func TestATeamsConsole(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	object := meshtest.Selection("shop", "cart", "app: orders")
	reader := e.enter(bob)
	for _, write := range []struct {
		path string
		form []string
	}{
		{"/plan/apply", []string{"text", object, "pin", "absent"}},
		{"/plan/apply", []string{"delete", "AppEndpoints/shop/cart", "pin", "1"}},
		{"/links/revoke", []string{"id", "0123abcd"}},
	} {
		if status := post(reader, write.path, write.form...); status != http.StatusForbidden {
			t.Errorf("a reader's POST %s %s: status %d, want 403", write.path, write.form[0], status)
		}
		reader.AwaitFault("403")
	}
	if status := post(reader, "/plan", "text", object); status != http.StatusOK {
		t.Errorf("a reader tries a change out: status %d", status)
	}
	reader.Open(e.url + "/plan")
	reader.Fill("Objects, as YAML", object)
	reader.Click("Show what this would change")
	reader.Await("You may not write here")

	writer := e.enter(ann)
	writer.Open(e.url + "/plan")
	writer.Fill("Objects, as YAML", object)
	writer.Click("Show what this would change")
	writer.Click("Apply exactly this")
	writer.Await("Done.")
	reader.Open(e.url + "/events")
	reader.Await("by=" + ann.Email)
	if status := post(writer, "/links/revoke", "id", "0123abcd"); status != http.StatusForbidden {
		t.Errorf("who may write and not link revokes an invitation: status %d, want 403", status)
	}
	writer.AwaitFault("403")
	log, err := os.ReadFile(e.cluster.LogFile())
	if err != nil || strings.Contains(string(log), secret) || !strings.Contains(string(log), "caller="+bob.Email) {
		t.Errorf("the log (%v) has the client's secret, or not who was refused:\n%s", err, log)
	}
	for _, path := range []string{"/", "/trust", "/links", "/events"} {
		reader.Open(e.url + path)
		if text := browser.Evaluate[string](reader, "document.documentElement.outerHTML"); strings.Contains(text, secret) || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s shows a secret", path)
		}
	}
}
