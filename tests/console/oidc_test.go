package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestPeopleSignIn at a real provider, by its form, and may do what their groups may.
func TestPeopleSignIn(t *testing.T) {
	x := newTeam(t, nil)
	b := x.browser()
	for _, c := range []struct {
		person servers.DexPerson
		shown  string
	}{
		{ann, "ann@example.com may [read write] at /explain?from=shop%2Fa&to=b;"},
		{bob, "bob@example.com may [read] at /explain?from=shop%2Fa&to=b;"},
		{eve, "None of them may read here."},
	} {
		t.Run(c.person.Email, func(t *testing.T) {
			p := b.Page(t)
			x.signIn(p, "/explain?from=shop%2Fa&to=b", c.person)
			p.Await(c.shown)
			if c.person.Email == eve.Email {
				p.AwaitFault("403") // what the browser says of such a page
				if _, in := x.session(p); in || p.Status() != http.StatusForbidden {
					t.Errorf("status %d, session %t", p.Status(), in)
				}
				x.legible(t, p, "no-right")
				return
			}
			session, _ := x.session(p)
			if !session.HTTPOnly || !session.Secure || session.SameSite != "Strict" || session.Domain != "console.example" || !session.Session {
				t.Errorf("the session's cookie is %+v", session)
			}
			p.Click("Sign out")
			p.Await("Signed out")
			if c.person.Email == ann.Email {
				x.legible(t, p, "signed-out")
			}
			if _, in := x.session(p); in {
				t.Error("a session after it has ended")
			}
			if status, to := x.get("/", "Cookie", session.Name+"="+session.Value); status != http.StatusSeeOther || !strings.HasPrefix(to, "/login") {
				t.Errorf("the cookie after logout: %d %s; want the way to sign in", status, to)
			}
			p.Click("Sign in again")
			if !strings.HasPrefix(p.URL(), x.provider.URL) {
				t.Errorf("at %s; want the provider, which asks again", p.URL())
			}
		})
	}
}

// TestTokensOfOthersAreRefused: real ones, well signed, that a provider's endpoint might be made to
// answer with.
func TestTokensOfOthersAreRefused(t *testing.T) {
	shared := sharedStorage(t)
	x := newTeam(t, shared)
	tenant := startDex(t, servers.DexOptions{Settings: shared}, x.url)
	stranger := startDex(t, servers.DexOptions{}, x.url)
	b := x.browser()
	for name, c := range map[string]struct {
		tamper func(asked url.Values) []byte
		log    string // why it is refused; empty: it is not
	}{
		"its own, of somebody else":  {func(asked url.Values) []byte { return x.tokens(x.dex, consoleID, asked.Get("nonce"), bob) }, ""},
		"another client's":           {func(asked url.Values) []byte { return x.tokens(x.dex, wikiID, asked.Get("nonce"), ann) }, "expected audience"},
		"another login's":            {func(url.Values) []byte { return x.tokens(x.dex, consoleID, "of-before", ann) }, "nonce differs"},
		"another provider's":         {func(asked url.Values) []byte { return x.tokens(stranger, consoleID, asked.Get("nonce"), ann) }, "verify signature"},
		"one's that shares its keys": {func(asked url.Values) []byte { return x.tokens(tenant, consoleID, asked.Get("nonce"), ann) }, "different provider"},
	} {
		t.Run(name, func(t *testing.T) {
			x.restart()
			x.tamperBy(c.tamper)
			p := b.Page(t)
			x.signIn(p, "/", ann)
			if c.log == "" {
				p.Await("bob@example.com may [read] at /;")
				return
			}
			x.refused(t, p, "does not prove")
			if !strings.Contains(x.log.String(), c.log) {
				t.Errorf("the log does not say %q: %s", c.log, x.log)
			}
			x.tamperBy(nil)
			if p.Click("To the console"); !strings.HasPrefix(p.URL(), x.provider.URL) {
				t.Errorf("at %s; want the provider: nobody is in", p.URL())
			}
		})
	}
}

// sharedStorage has several Dexes keep what they know, their keys among it, in one etcd.
func sharedStorage(t *testing.T) map[string]any {
	t.Helper()
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	return map[string]any{"storage": map[string]any{"type": "etcd", "config": map[string]any{"endpoints": []string{etcd.URL()}}}}
}

// TestACodeWorksOnce, in the browser that it was given to.
func TestACodeWorksOnce(t *testing.T) {
	x := newTeam(t, nil)
	b := x.browser()
	p := b.Page(t)
	x.signIn(p, "/", ann)
	p.Await("ann@example.com may")
	var callback string
	for _, visited := range p.Visited() {
		if strings.HasPrefix(visited, x.url+"/login/callback?") {
			callback = visited
		}
	}
	answer, err := url.Parse(callback)
	if err != nil || answer.Query().Get("code") == "" {
		t.Fatalf("the browser was at %v; want the provider's answer", p.Visited())
	}
	p.Open(callback)
	x.refusal(t, p, "It took more than 10 minutes, was used already")
	x.legible(t, p, "login-failed")
	p.Open(x.url)
	p.Await("ann@example.com may") // still in

	other := b.Page(t)
	other.Open(callback)
	x.refused(t, other, "was used already")

	// The same code once more, in an attempt that the browser has just begun.
	other.Open(x.url)
	state := x.latest().Get("state")
	other.Open(x.url + "/login/callback?" + url.Values{"code": answer.Query()["code"], "state": {state}}.Encode())
	x.refused(t, other, "does not prove")
	if !strings.Contains(x.log.String(), "invalid_grant") {
		t.Errorf("the log does not say that the provider refused the code: %s", x.log)
	}
	// A code of somebody else that nobody has used, in the same way: one would be in as they are.
	client := x.provider.Client()
	defer client.CloseIdleConnections()
	stolen, err := servers.SignIn(client, x.provider.URL+"/dex/auth?"+x.latest().Encode(), bob)
	if err != nil {
		t.Fatal(err)
	}
	before := x.log.String()
	x.restart()
	other.Open(x.url)
	other.Open(x.url + "/login/callback?" + url.Values{"code": stolen.Query()["code"], "state": {x.latest().Get("state")}}.Encode())
	x.refused(t, other, "does not prove")
	if !strings.Contains(x.log.String(), "invalid_grant") {
		t.Errorf("the log does not say that the provider refused another's code: %s", x.log)
	}
	for _, secret := range []string{secret, answer.Query().Get("code"), answer.Query().Get("state"), state, stolen.Query().Get("code")} {
		if strings.Contains(before+x.log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// TestOtherSitesWriteNothing in the name of somebody who is in.
func TestOtherSitesWriteNothing(t *testing.T) {
	x := newTeam(t, nil)
	p := x.browser().Page(t)
	x.signIn(p, "/", ann)
	p.Await("0 written")
	p.Click("Write")
	p.Await("1 written") // it works as it is meant

	p.Open(x.url)
	p.Click("Write without token")
	x.refusal(t, p, "This form is old")

	form := x.server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>Win</title><link rel="icon" href="data:,"><form method="post" action="` + x.url + `/write"><button>Win</button></form></html>`))
	}), "evil.test")
	for _, site := range []string{"evil.test", "other.console.example"} { // the latter is the same site to cookies
		p.Open(strings.Replace(form.URL, "127.0.0.1", site, 1))
		p.Click("Win")
		if p.URL() != x.url+"/write" {
			t.Errorf("at %s; want the console", p.URL())
		}
		x.refusal(t, p, "Another site has sent this form")
	}

	// A name of another site that leads to the console.
	if status := p.Open(strings.Replace(x.gate.URL, "127.0.0.1", "evil.test", 1)); status != http.StatusMisdirectedRequest || !strings.Contains(p.Text(), "answers to console.example") {
		t.Errorf("by another name: %d %s", status, p.Text())
	}
	p.AwaitFault("421")
	p.Open(x.url)
	p.Await("1 written")
	if got := x.writes(); got != 1 {
		t.Errorf("%d forms were taken, want one", got)
	}
}
