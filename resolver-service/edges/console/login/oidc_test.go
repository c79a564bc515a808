package login

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/settings"
)

// team is a gate with a provider, and a browser in front of it.
type team struct {
	*browser
	*login
	p   *provider
	log bytes.Buffer
}

func newTeam(t *testing.T, edits ...func(*Config, *provider)) *team {
	t.Helper()
	p := newProvider(t)
	p.secret = clientSecret
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(clientSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{URL: secure, Issuer: p.URL, ClientID: clientID, ClientSecret: &settings.Secret{File: file}, CAFile: p.ca(),
		Groups: Groups{Read: []string{"all"}, Write: []string{"sre"}, Link: []string{"admins"}}}
	for _, edit := range edits {
		edit(&c, p)
	}
	x := &team{p: p}
	var err error
	if x.login, err = newLogin(t.Context(), c, slog.New(slog.NewJSONHandler(&x.log, nil))); err != nil {
		t.Fatal(err)
	}
	x.browser = &browser{t, x.Handler(pages), secure, map[string]*http.Cookie{}}
	return x
}

// toCallback is where the provider sends the browser to, which came from a path of the console.
func (x *team) toCallback(path string) string {
	x.t.Helper()
	r := x.send("GET", path, "")
	x.want(path, r, 303)
	if at := r.Header.Get("Location"); strings.HasPrefix(at, "/login?") {
		r = x.send("GET", at, "")
		x.want(at, r, 303)
	}
	if !strings.HasPrefix(r.Header.Get("Location"), x.p.URL+"/auth?") {
		x.t.Fatalf("login leads to %s", r.Header.Get("Location"))
	}
	transport := x.p.Client().Transport
	request, _ := http.NewRequestWithContext(x.t.Context(), "GET", r.Header.Get("Location"), nil)
	r, err := transport.RoundTrip(request)
	if err != nil {
		x.t.Fatal(err)
	}
	r.Body.Close()
	transport.(*http.Transport).CloseIdleConnections()
	return strings.TrimPrefix(r.Header.Get("Location"), secure)
}

// session is what pages see; nil outside.
func (x *team) session() (s *Session) {
	x.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s = SessionOf(r.Context()) })).
		ServeHTTP(discard{}, x.request("/"))
	return s
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

func TestSignInAndOut(t *testing.T) {
	for name, edit := range map[string]func(*Config, *provider){
		"a secret in the header":            func(*Config, *provider) {},
		"a secret in the header, as listed": func(_ *Config, p *provider) { p.methods = []string{"client_secret_basic", "client_secret_post"} },
		"a secret in the form":              func(_ *Config, p *provider) { p.methods = []string{"client_secret_post"} },
		"a public client":                   func(c *Config, p *provider) { c.ClientSecret, p.secret = nil, "" },
	} {
		x := newTeam(t, edit)
		back := x.toCallback("/explain?from=shop/a&to=b")
		c := x.cookies["__Host-isthmus-login"]
		if c == nil || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.MaxAge != 600 || c.Path != "/" || c.Domain != "" {
			t.Errorf("%s: the attempt's cookie is %v", name, c)
		}
		x.want(name, x.send("GET", back, "", header("Sec-Fetch-Site", "cross-site")), 200, `content="0; url=/explain?from=shop/a&amp;to=b"`)
		s := x.session()
		if s == nil || s.Person != "ann@example.org" || !slices.Equal(s.Rights, []Right{Read, Write}) || s.May(Link) || len(x.cookies) != 1 {
			t.Fatalf("%s: session %+v, cookies %v\n%s", name, s, x.cookies, &x.log)
		}
		x.want("logout", x.send("POST", "/logout", "token="+s.Token), 200, "Signed out")
		if x.session() != nil {
			t.Errorf("%s: a session after logout", name)
		}
		for _, want := range []string{`"msg":"console: signed in","person":"ann@example.org"`, `"rights":["read","write"]`, `"subject":"7"`, "signed out"} {
			if !strings.Contains(x.log.String(), want) {
				t.Errorf("%s: the log lacks %s: %s", name, want, &x.log)
			}
		}
		x.noSecret(name, s.Token)
	}
}

// noSecret checks that the log has none.
func (x *team) noSecret(name string, more ...string) {
	x.t.Helper()
	for _, secret := range append(more, append(x.p.sent, clientSecret)...) {
		if secret == "" || strings.Contains(x.log.String(), secret) {
			x.t.Errorf("%s: the log has %q:\n%s", name, secret, &x.log)
		}
	}
}

func TestLoginsThatAreRefused(t *testing.T) {
	set := func(name string, value any) func(*team) {
		return func(x *team) { x.p.edit = func(claims map[string]any) { claims[name] = value } }
	}
	unset := func(name string) func(*team) {
		return func(x *team) { x.p.edit = func(claims map[string]any) { delete(claims, name) } }
	}
	sign := func(by func(*provider, map[string]any) string) func(*team) { return func(x *team) { x.p.sign = by } }
	const proves, name = "does not prove", "no name"
	for what, c := range map[string]struct {
		edit      func(*team)
		page, log string
	}{
		"another nonce":              {set("nonce", random()), proves, "nonce differs"},
		"no nonce":                   {unset("nonce"), proves, "nonce differs"},
		"another audience":           {set("aud", "grafana"), proves, "expected audience"},
		"no audience":                {unset("aud"), proves, "expected audience"},
		"issued to another client":   {set("azp", "grafana"), proves, "azp differs"},
		"another issuer":             {set("iss", "https://evil.example"), proves, "different provider"},
		"an issuer with a slash":     {func(x *team) { set("iss", x.p.URL+"/")(x) }, proves, "different provider"},
		"expired":                    {set("exp", time.Now().Add(-time.Second).Unix()), proves, "expired"},
		"never expires":              {unset("exp"), proves, "expired"},
		"not yet":                    {set("nbf", time.Now().Add(time.Hour).Unix()), proves, "nbf"},
		"no signature":               {sign((*provider).unsigned), proves, "algorithm"},
		"signed by another key":      {sign((*provider).byAnother), proves, "verify"},
		"signed by the secret":       {sign((*provider).bySecret), proves, "algorithm"},
		"no ID token":                {sign(func(*provider, map[string]any) string { return "" }), proves, "no ID token"},
		"no token at all":            {sign(func(*provider, map[string]any) string { return "a.b.c" }), proves, "malformed"},
		"claims that are no object":  {sign(func(p *provider, _ map[string]any) string { return p.right(nil) }), proves, "ID token"},
		"another secret":             {func(x *team) { x.p.secret = "another" }, proves, "invalid_client"},
		"no name":                    {set("email", 7), "", ""}, // the subject stands in
		"a name that hides":          {set("email", "ann\u202e@example.org"), name, "can't be seen"},
		"a name that is too long":    {set("email", strings.Repeat("a", 254)), name, "253"},
		"no groups":                  {unset("groups"), "names no group", `"groups":null`},
		"groups of others":           {set("groups", []string{"sales", "<b>x</b>"}), "ann@example.org. The provider says that you are in sales, &lt;b&gt;x", `"sales"`},
		"groups that are no texts":   {set("groups", map[string]any{"all": true}), "names no group", `"groups":null`},
		"the provider refuses":       {func(x *team) { x.p.deny = "access_denied" }, "access_denied", "access_denied"},
		"the provider refuses oddly": {func(x *team) { x.p.deny = "<script>alert(1)</script>" }, "&lt;script&gt;", "script"},
	} {
		x := newTeam(t)
		c.edit(x)
		r := x.send("GET", x.toCallback("/"), "")
		if c.page == "" {
			x.want(what, r, 200)
			continue
		}
		x.want(what, r, 403, c.page)
		if !strings.Contains(x.log.String(), c.log) || strings.Count(x.log.String(), "\n") != 1 {
			t.Errorf("%s: the log is %s", what, &x.log)
		}
		if x.p.asks > 1 {
			t.Errorf("%s: a code was shown %d times", what, x.p.asks)
		}
		if x.session() != nil || len(x.cookies) > 0 {
			t.Errorf("%s: session %v, cookies %v", what, x.session(), x.cookies)
		}
		x.noSecret(what)
	}
}

// A person may be in hundreds of groups. They are in no cookie, and a page and a line name a few.
func TestAPersonInManyGroups(t *testing.T) {
	var groups []string
	for i := range 400 {
		groups = append(groups, fmt.Sprintf("%03d-%s", i, strings.Repeat("g", 249)))
	}
	in := func(groups []string) *team {
		x := newTeam(t)
		x.p.edit = func(claims map[string]any) { claims["groups"] = groups }
		return x
	}
	x := in(append(groups, "sre"))
	x.want("in", x.send("GET", x.toCallback("/"), ""), 200)
	for _, c := range x.cookies {
		if text := c.String(); len(text) > 200 {
			t.Errorf("a cookie of %d bytes: %s", len(text), text)
		}
	}
	if x.session() == nil {
		t.Error("not in")
	}
	x = in(groups)
	x.want("out", x.send("GET", x.toCallback("/"), ""), 403, "It names 380 more.")
	if n := x.log.Len(); n > 8<<10 {
		t.Errorf("%d bytes of log", n)
	}
}

// Hundreds who begin and never come back keep nobody out.
func TestUnfinishedLoginsKeepNobodyOut(t *testing.T) {
	x := newTeam(t)
	back, own := x.toCallback("/"), x.cookies
	for range 300 {
		x.cookies = map[string]*http.Cookie{}
		x.send("GET", "/login", "")
	}
	x.cookies = own
	x.want("the first of all", x.send("GET", back, ""), 200)
	x.cookies = map[string]*http.Cookie{}
	x.want("the last of all", x.send("GET", x.toCallback("/"), ""), 200)
	x.attempts.all.Resize(10)
	for range 30 {
		x.send("GET", "/login", "", header("Cookie", ""))
	}
	if n := x.attempts.all.Len(); n != 10 {
		t.Errorf("%d attempts are kept; want 10", n)
	}
}

func TestAnAttemptWorksOnceInItsBrowser(t *testing.T) {
	const failed = "another tab"
	x := newTeam(t)
	back := x.toCallback("/")
	cookie := *x.cookies["__Host-isthmus-login"]
	q, _ := url.ParseQuery(back[strings.Index(back, "?")+1:])
	without := header("Cookie", "")
	for what, path := range map[string]string{
		"no state":       "/login/callback?code=" + q.Get("code"),
		"another state":  "/login/callback?code=" + q.Get("code") + "&state=" + random(),
		"nothing at all": "/login/callback",
		"no query":       "/login/callback?%zz;",
	} {
		x.want(what, x.send("GET", path, ""), 403, failed)
	}
	x.want("another browser", x.send("GET", back, "", without), 403, failed)
	x.want("another browser, made up", x.send("GET", back, "", header("Cookie", cookie.Name+"="+random())), 403, failed)
	x.want("fetched ahead", x.send("GET", back, "", header("Sec-Purpose", "prefetch")), 503)
	x.want("the attempt", x.send("GET", back, ""), 200)
	x.want("replayed", x.send("GET", back, ""), 403, failed)
	x.want("replayed with its cookie", x.send("GET", back, "", header("Cookie", cookie.String())), 403, failed)
	x.want("still in", x.send("GET", "/", ""), 200, "pages for ann@example.org")

	x.cookies = map[string]*http.Cookie{}
	replay := x.toCallback("/")
	fresh, _ := url.ParseQuery(replay[strings.Index(replay, "?")+1:])
	x.want("a code of before in a new attempt", x.send("GET", "/login/callback?"+url.Values{
		"code": {q.Get("code")}, "state": {fresh.Get("state")}}.Encode(), ""), 403, "does not prove")
	stolen := x.toCallback("/")
	other := x.toCallback("/") // another tab, or somebody else's code in this browser's attempt
	code, _ := url.ParseQuery(stolen[strings.Index(stolen, "?")+1:])
	state, _ := url.ParseQuery(other[strings.Index(other, "?")+1:])
	x.want("the earlier of two tabs", x.send("GET", stolen, ""), 403, failed)
	x.want("another attempt's code", x.send("GET", "/login/callback?"+url.Values{
		"code": {code.Get("code")}, "state": {state.Get("state")}}.Encode(), ""), 403, "does not prove")
	late := x.toCallback("/")
	x.attempts.life = 0
	x.want("after its time", x.send("GET", late, ""), 403, failed)
	x.noSecret("attempts")
}

func TestASessionThatLapses(t *testing.T) {
	x := newTeam(t)
	x.want("in", x.send("GET", x.toCallback("/"), ""), 200)
	if x.sessions.life != 8*time.Hour || x.sessions.idle != 2*time.Hour {
		t.Errorf("a session lasts %v, %v idle", x.sessions.life, x.sessions.idle)
	}
	token := x.session().Token
	x.sessions.life = 0
	x.want("a page", x.send("GET", "/map", ""), 303)
	x.want("a stream", x.send("GET", "/live", ""), 401)
	x.want("a form", x.send("POST", "/plan", "token="+token), 401)
}

func TestWhereALoginReturnsTo(t *testing.T) {
	x := newTeam(t)
	for to, want := range map[string]string{
		"/map?focus=a":                      "/map?focus=a",
		"//evil":                            "/",
		`/\evil`:                            "/",
		"/\t/evil":                          "/",
		"https://evil":                      "/",
		"https://evil/map":                  "/",
		"//evil/map":                        "/",
		"/a b":                              "/a%20b",
		"/" + strings.Repeat("a", mostPath): "/",
		"/logout":                           "/",
		`/a"onload="b`:                      "/a%22onload=%22b",
		"javascript:a":                      "/",
	} {
		back := x.toCallback("/login?" + url.Values{"to": {to}}.Encode())
		x.want(to, x.send("GET", back, ""), 200, fmt.Sprintf(`url=%s"`, want))
	}
}

func TestTheProviderIsAway(t *testing.T) {
	x := newTeam(t, func(_ *Config, p *provider) { p.away = true })
	if x.p.asked > 0 {
		t.Error("the provider was asked at the start")
	}
	for range 2 {
		x.want("away", x.send("GET", "/login", ""), 502, x.p.URL+"/.well-known/openid-configuration", "log of the service")
	}
	x.p.away = false
	x.want("back", x.send("GET", x.toCallback("/"), ""), 200)
	if x.p.asked != 3 {
		t.Errorf("the provider was asked %d times, want 3", x.p.asked)
	}
	x = newTeam(t, func(c *Config, _ *provider) { c.CAFile = "" })
	x.want("not trusted", x.send("GET", "/login", ""), 502, "trust its certificate")
	if !strings.Contains(x.log.String(), "unknown authority") {
		t.Errorf("the log does not say why: %s", &x.log)
	}
	x = newTeam(t, func(c *Config, _ *provider) { c.Issuer += "/" })
	x.want("another issuer", x.send("GET", "/login", ""), 502, "know its issuer exactly")
	x = newTeam(t, func(c *Config, _ *provider) { c.ClientSecret.File += "-gone" })
	x.want("no secret", x.send("GET", "/login", ""), 500, "secret")
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for what, edit := range map[string]func(*Config){
		"beyond loopback it must begin": func(c *Config) { c.URL = "http://console.example.org" },
		"issuer is not of the form":     func(c *Config) { c.Issuer = "login.example.org" },
		"issuer http://login":           func(c *Config) { c.Issuer = "http://login.example.org" },
		"client's id":                   func(c *Config) { c.ClientID = "" },
		"no group may read":             func(c *Config) { c.Groups = Groups{} },
		"at most 12h":                   func(c *Config) { c.Life = 13 * time.Hour },
		"lack openid":                   func(c *Config) { c.Scopes = []string{"email"} },
		"where the secret is":           func(c *Config) { c.ClientSecret = &settings.Secret{} },
		"roots of the provider":         func(c *Config) { c.CAFile = "/nowhere" },
	} {
		c := Config{URL: secure, Issuer: "https://login.example.org", ClientID: clientID, Groups: Groups{Link: []string{"*"}}}
		if _, err := NewOIDC(context.Background(), c, slog.Default()); err != nil {
			t.Fatal(err)
		}
		edit(&c)
		if _, err := NewOIDC(context.Background(), c, slog.Default()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRightsOfGroups(t *testing.T) {
	g := Groups{Read: []string{"all"}, Write: []string{"sre", "dev"}, Link: []string{"admins"}}
	for _, c := range []struct {
		g      Groups
		claim  any
		rights string
	}{
		{g, nil, "[]"},
		{g, "all", "[read]"},
		{g, "all,sre", "[]"},
		{g, []any{"sre"}, "[read write]"},
		{g, []any{"ALL", 7, nil, "", "dev"}, "[read write]"},
		{g, []any{"admins"}, "[read link]"},
		{g, []any{"admins", "dev"}, "[read write link]"},
		{g, []any{"*"}, "[]"},
		{g, []any{[]any{"sre"}}, "[]"},
		{Groups{Read: []string{"*"}}, nil, "[read]"},
		{Groups{Write: []string{"*"}}, nil, "[read write]"},
		{Groups{Link: []string{"*"}}, nil, "[read link]"},
	} {
		if got := fmt.Sprint(c.g.rights(texts(c.claim))); got != c.rights {
			t.Errorf("%v in %+v: %s, want %s", c.claim, c.g, got, c.rights)
		}
	}
}

func TestNamesOfPeople(t *testing.T) {
	all := map[string]any{"email": "ann@example.org", "preferred_username": "ann", "sub": "7", "name": "Ann"}
	with := func(name string, v any) map[string]any {
		c := map[string]any{name: v}
		for k, v := range all {
			if k != name {
				c[k] = v
			}
		}
		return c
	}
	for _, c := range []struct {
		claim  string
		claims map[string]any
		want   string
	}{
		{"", all, "ann@example.org"},
		{"", with("email_verified", true), "ann@example.org"},
		{"", with("email_verified", false), "ann"},
		{"", with("email_verified", "false"), "ann"},
		{"", with("email", ""), "ann"},
		{"", map[string]any{"sub": "7"}, "7"},
		{"name", all, "Ann"},
		{"name", with("name", "Ann Lee"), "Ann Lee"},
		{"name", with("name", " Ann"), ""},
		{"name", with("name", "Ann\nx"), ""},
		{"name", with("name", "Ann\xff"), ""},
		{"name", with("name", []any{"Ann"}), ""},
		{"upn", all, ""},
	} {
		got, err := (&Config{NameClaim: c.claim}).person(c.claims)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s of %v: %q, %v", c.claim, c.claims, got, err)
		}
	}
}
