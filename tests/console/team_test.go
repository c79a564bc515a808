package console

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"html/template"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/network"
	"golang.org/x/oauth2"

	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
	"github.com/isthmus-mesh/isthmus/tests/console/browser"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// People of the tests' provider, and what the console's groups let them do.
var (
	ann = servers.DexPerson{Email: "ann@example.com", Password: "of-ann", Groups: []string{"all", "sre"}} // reads and writes
	bob = servers.DexPerson{Email: "bob@example.com", Password: "of-bob", Groups: []string{"all"}}        // reads
	eve = servers.DexPerson{Email: "eve@example.com", Password: "of-eve", Groups: []string{"sales"}}      // may nothing
)

// Applications at the provider.
const (
	consoleID = "isthmus"
	wikiID    = "wiki" // which the console has nothing to do with
	secret    = "s3cret-of-the-clients"
)

// team is a console's gate that people come to in browsers, around a page that says who one is and
// takes forms. Its provider is a Dex behind a proxy, which may tamper with tokens.
type team struct {
	t         *testing.T
	dex       *servers.Dex
	provider  *httptest.Server // the proxy in front of Dex
	gate      *httptest.Server
	url       string // of the gate: a site that is not the provider's
	authority *sandbox.Authority
	log       *logged.Buffer               // of the gate
	handler   atomic.Pointer[http.Handler] // the gate

	mu      sync.Mutex
	asked   url.Values                           // what people were sent to the provider with, the latest
	tamper  func(asked url.Values) (body []byte) // answers for tokens in place of Dex; nil: Dex answers
	written int                                  // forms that the page has taken
}

// newTeam starts all of it. The settings are more keys of Dex's configuration.
func newTeam(t *testing.T, settings map[string]any) *team {
	t.Helper()
	x := &team{t: t}
	var err error
	if x.authority, err = sandbox.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	x.provider = x.server(http.HandlerFunc(x.proxy), "127.0.0.1")
	x.gate = x.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*x.handler.Load()).ServeHTTP(w, r) }), "console.example")
	x.url = strings.Replace(x.gate.URL, "127.0.0.1", "console.example", 1)
	x.dex = startDex(t, servers.DexOptions{Issuer: x.provider.URL + "/dex", Settings: settings}, x.url)
	x.restart()
	return x
}

// restart starts the gate anew: nobody is in, and its log has forgotten what it has said already.
func (x *team) restart() {
	x.t.Helper()
	dir := x.t.TempDir()
	files := map[string][]byte{"ca": x.authority.Anchors(), "secret": []byte(secret)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			x.t.Fatal(err)
		}
	}
	x.log = &logged.Buffer{}
	gate, err := login.NewOIDC(x.t.Context(), login.Config{
		URL: x.url, Issuer: x.dex.Issuer(), CAFile: filepath.Join(dir, "ca"),
		ClientID: consoleID, ClientSecret: &settings.Secret{File: filepath.Join(dir, "secret")},
		Groups: login.Groups{Read: []string{"all"}, Write: []string{"sre"}, Link: []string{"admins"}},
	}, slog.New(slog.NewTextHandler(x.log, nil)))
	if err != nil {
		x.t.Fatal(err)
	}
	handler := gate.Handler(http.HandlerFunc(x.page))
	x.handler.Store(&handler)
}

// startDex starts a Dex with the people and applications of these tests, for a console at a URL.
func startDex(t *testing.T, o servers.DexOptions, console string) *servers.Dex {
	t.Helper()
	o.People = []servers.DexPerson{ann, bob, eve}
	back := []string{console + "/login/callback"}
	o.Clients = []servers.DexClient{{ID: consoleID, Secret: secret, Redirects: back}, {ID: wikiID, Secret: secret, Redirects: back}}
	return serverstest.Start(t, servers.StartDex, o)
}

// server serves HTTPS on 127.0.0.1, with a certificate for a name that sends its authority along.
func (x *team) server(handler http.Handler, name string) *httptest.Server {
	x.t.Helper()
	cert, key, err := x.authority.Server(name)
	if err != nil {
		x.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(slices.Concat(cert, x.authority.Anchors()), key)
	if err != nil {
		x.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = quiet
	s.StartTLS()
	x.t.Cleanup(s.Close)
	return s
}

// quiet is for what servers say of browsers that hang up.
var quiet = slog.NewLogLogger(slog.DiscardHandler, 0)

// browser starts a browser that knows the console, and other sites at their own names.
func (x *team) browser() *browser.Browser {
	x.t.Helper()
	return browser.Start(x.t, browser.Options{Trust: x.authority.Anchors(), Hosts: map[string]string{
		"console.example": "127.0.0.1", "other.console.example": "127.0.0.1", "evil.test": "127.0.0.1",
	}})
}

// proxy stands between everybody and the Dex.
func (x *team) proxy(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	if r.URL.Path == "/dex/auth" {
		x.asked = r.URL.Query()
	}
	asked, tamper := x.asked, x.tamper
	x.mu.Unlock()
	if r.URL.Path == "/dex/token" && tamper != nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(tamper(asked))
		return
	}
	client := x.dex.Client()
	defer client.CloseIdleConnections()
	to := &url.URL{Scheme: "https", Host: x.dex.Addr()}
	(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: client.Transport, ErrorLog: quiet,
	}).ServeHTTP(w, r)
}

// tokens are what a Dex really gives an application for a person, who was sent there with a nonce.
func (x *team) tokens(d *servers.Dex, id, nonce string, person servers.DexPerson) []byte {
	client := d.Client()
	defer client.CloseIdleConnections()
	base := "https://" + d.Addr() + "/dex"
	verifier, back := oauth2.GenerateVerifier(), x.url+"/login/callback"
	to, err := servers.SignIn(client, base+"/auth?"+url.Values{
		"client_id": {id}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid profile email groups"},
		"state": {"s"}, "nonce": {nonce}, "code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"},
	}.Encode(), person)
	if err != nil {
		x.t.Error(err)
		return nil
	}
	res, err := client.PostForm(base+"/token", url.Values{
		"grant_type": {"authorization_code"}, "code": to.Query()["code"], "redirect_uri": {back}, "client_id": {id}, "client_secret": {secret}, "code_verifier": {verifier},
	})
	if err != nil {
		x.t.Error(err)
		return nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || !json.Valid(text) || res.StatusCode != http.StatusOK {
		x.t.Errorf("tokens of %s: %s, %v: %s", id, res.Status, err, text)
	}
	return text
}

var pageTemplate = template.Must(template.New("").Parse(`<!doctype html><html lang="en"><head><title>Console</title>
<link rel="icon" href="/assets/icon.svg"><link rel="stylesheet" href="/assets/console.css"></head><body><main><h1>Console</h1>
<p>{{.Session.Person}} may {{.Session.Rights}} at {{.At}}; {{.Written}} written</p>
<form method="post" action="/write"><input type="hidden" name="token" value="{{.Session.Token}}"><button>Write</button></form>
<form method="post" action="/write"><button>Write without token</button></form>
<form method="post" action="/logout"><input type="hidden" name="token" value="{{.Session.Token}}"><button>Sign out</button></form>
</main></body></html>`))

// page is all that the console has here.
func (x *team) page(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/assets/") {
		http.StripPrefix("/assets", http.FileServer(http.Dir("../../resolver-service/edges/console/pages/assets"))).ServeHTTP(w, r)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.Method == http.MethodPost {
		x.written++
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = pageTemplate.Execute(w, map[string]any{"Session": login.SessionOf(r.Context()), "At": r.URL.RequestURI(), "Written": x.written})
}

// writes is how many forms the page has taken.
func (x *team) writes() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.written
}

// signIn opens a page of the console, and fills in the provider's form.
func (x *team) signIn(p *browser.Page, path string, person servers.DexPerson) {
	x.t.Helper()
	p.Open(x.url + path)
	if !strings.HasPrefix(p.URL(), x.provider.URL+"/dex/auth/") {
		x.t.Fatalf("%s leads to %s; want the provider's form", path, p.URL())
	}
	p.Fill("Email Address", person.Email)
	p.Fill("Password", person.Password)
	p.Click("Login")
}

// get asks the console without a browser, with a header, and follows nothing.
func (x *team) get(path string, header ...string) (status int, location string) {
	x.t.Helper()
	transport := x.gate.Client().Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	transport.TLSClientConfig.InsecureSkipVerify = true // the certificate is not what this is about
	address := x.gate.Listener.Addr().String()
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	req, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, x.url+path, nil)
	if err != nil {
		x.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		x.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode, res.Header.Get("Location")
}

// tamperBy has the proxy answer for tokens in place of Dex; nil: Dex answers.
func (x *team) tamperBy(tamper func(asked url.Values) []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tamper = tamper
}

// latest is what somebody was sent to the provider with.
func (x *team) latest() url.Values {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asked
}

// session is the cookie of a person's session.
func (x *team) session(p *browser.Page) (cookie network.Cookie, in bool) {
	x.t.Helper()
	for _, c := range p.Cookies() {
		if strings.HasPrefix(c.Name, "__Host-isthmus-session") {
			return *c, true
		}
	}
	return cookie, false
}

// refusal checks that the page refuses.
func (x *team) refusal(t *testing.T, p *browser.Page, text string) {
	t.Helper()
	p.Await(text)
	if p.Status() != http.StatusForbidden {
		t.Errorf("status %d, want 403", p.Status())
	}
	p.AwaitFault("403") // what the browser says of such a page
}

// refused checks that the page refuses a person who then is not in.
func (x *team) refused(t *testing.T, p *browser.Page, text string) {
	t.Helper()
	x.refusal(t, p, text)
	if cookie, in := x.session(p); in {
		t.Errorf("a session: %+v", cookie)
	}
}

// legible checks that everybody can read a page, in the dark and on a telephone, too.
func (x *team) legible(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	p.Viewport(320, 900)
	if column := browser.Evaluate[float64](p, "document.querySelector('main').clientWidth"); column < 320 {
		t.Errorf("%s: the text is %g px wide", name, column)
	}
	p.Everywhere(name, "best-practice")
}
