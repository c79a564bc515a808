package login

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	plain  = "http://127.0.0.1:8250"
	secure = "https://console.example.org"
)

// pages are behind the gate, and say who is there.
var pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if s := SessionOf(r.Context()); s != nil {
		fmt.Fprintf(w, "pages for %s", s.Person)
		return
	}
	io.WriteString(w, "an asset")
})

// browser is what a test sends requests with; it keeps cookies as one of a single site.
type browser struct {
	t       *testing.T
	handler http.Handler
	at      string
	cookies map[string]*http.Cookie
}

func (b *browser) send(method, path, body string, edit ...func(*http.Request)) *http.Response {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, b.at+path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.at)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w.Result()
}

func (b *browser) want(what string, r *http.Response, status int, texts ...string) string {
	b.t.Helper()
	text, _ := io.ReadAll(r.Body)
	if r.StatusCode != status {
		b.t.Errorf("%s: %s, want %d: %s", what, r.Status, status, text)
	}
	for _, want := range texts {
		if !strings.Contains(string(text), want) {
			b.t.Errorf("%s: the answer lacks %q: %s", what, want, text)
		}
	}
	return string(text)
}

// once is a gate with a URL that works once, and a browser in front of it.
func once(t *testing.T, c OnceConfig) (*Once, *browser, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	o, err := NewOnce(c, slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return o, &browser{t, o.Handler(pages), c.URL, map[string]*http.Cookie{}}, &log
}

// inside is once with a browser that is in, and its session.
func inside(t *testing.T, at string) (*Once, *browser, *Session) {
	t.Helper()
	o, b, _ := once(t, OnceConfig{URL: at, Person: "ann"})
	b.want("enter", b.send("GET", strings.TrimPrefix(o.URL(), at), ""), 200, `content="0; url=/"`, `href="/"`)
	var s *Session
	o.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s = SessionOf(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), b.request("/"))
	if s == nil {
		t.Fatal("no session after the right key")
	}
	return o, b, s
}

func (b *browser) request(path string) *http.Request {
	r := httptest.NewRequestWithContext(b.t.Context(), "GET", b.at+path, nil)
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	return r
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func TestRefusals(t *testing.T) {
	_, b, s := inside(t, plain)
	form := url.Values{TokenField: {s.Token}}.Encode()
	for name, c := range map[string]struct {
		method, path, body string
		edit               func(*http.Request)
		status             int
		text               string
	}{
		"a page":                       {"GET", "/map", "", nil, 200, "pages for ann"},
		"by the other name of it":      {"GET", "/map", "", host("localhost:8250"), 200, "pages for ann"},
		"a form":                       {"POST", "/plan", form, nil, 200, "pages for ann"},
		"a form of an older browser":   {"POST", "/plan", form, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, 200, "pages"},
		"no browser":                   {"POST", "/plan", form, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Del("Origin") }, 200, "pages"},
		"another host":                 {"GET", "/", "", host("evil.example:8250"), 421, "127.0.0.1:8250 and localhost:8250"},
		"another host's asset":         {"GET", "/assets/a.css", "", host("evil.example"), 421, "forward"},
		"another port":                 {"GET", "/", "", host("127.0.0.1:8251"), 421, plain},
		"the host without its port":    {"GET", "/", "", host("127.0.0.1"), 421, plain},
		"the host with a point":        {"GET", "/", "", host("localhost.:8250"), 421, plain},
		"no host":                      {"GET", "/", "", host(""), 421, plain},
		"a foreign origin":             {"POST", "/plan", form, header("Origin", "http://evil.example"), 403, "Another site"},
		"the origin of another port":   {"POST", "/plan", form, header("Origin", "http://127.0.0.1:9"), 403, "Another site"},
		"the origin of its other name": {"POST", "/plan", form, header("Origin", "http://localhost:8250"), 403, "Another site"},
		"the origin by another scheme": {"POST", "/plan", form, header("Origin", "https://127.0.0.1:8250"), 403, "Another site"},
		"an origin that hides":         {"POST", "/plan", form, header("Origin", "null"), 403, "Another site"},
		"a foreign site":               {"POST", "/plan", form, header("Sec-Fetch-Site", "cross-site"), 403, "Another site"},
		"a site beside it":             {"POST", "/plan", form, header("Sec-Fetch-Site", "same-site"), 403, "Another site"},
		"a foreign origin, no session": {"POST", "/plan", form, func(r *http.Request) { r.Header.Del("Cookie"); r.Header.Set("Origin", "http://evil.example") }, 403, "Another site"},
		"no token":                     {"POST", "/plan", "a=b", nil, 403, "This form is old"},
		"another token":                {"POST", "/plan", "token=" + random(), nil, 403, "This form is old"},
		"a token in the URL":           {"POST", "/plan?" + form, "a=b", nil, 403, "This form is old"},
		"a token in JSON":              {"POST", "/plan", `{"token":"` + s.Token + `"}`, header("Content-Type", "application/json"), 403, "This form is old"},
		"a token in plain text":        {"POST", "/plan", form, header("Content-Type", "text/plain"), 403, "This form is old"},
		"a form for assets":            {"POST", "/assets/a.css", "a=b", nil, 403, "This form is old"},
		"a form that is too large":     {"POST", "/plan", form + "&yaml=" + strings.Repeat("a", mostForm), nil, 413, "4 MB"},
		"another method":               {"PUT", "/plan", form, nil, 405, ""},
		"the method that asks before":  {"OPTIONS", "/plan", "", header("Origin", "http://evil.example"), 405, ""},
		"no cookie":                    {"GET", "/map", "", func(r *http.Request) { r.Header.Del("Cookie") }, 401, "works once"},
		"a form without a cookie":      {"POST", "/plan", form, func(r *http.Request) { r.Header.Del("Cookie") }, 401, "not signed in"},
		"a stream without a cookie":    {"GET", "/live", "", func(r *http.Request) { r.Header.Del("Cookie") }, 401, "has ended"},
		"a script without a cookie":    {"GET", "/map", "", func(r *http.Request) { r.Header = http.Header{"Sec-Fetch-Mode": {"same-origin"}} }, 401, "has ended"},
		"a cookie that is made up":     {"GET", "/map", "", header("Cookie", "isthmus-session-8250="+random()), 401, "works once"},
		"a cookie of another port":     {"GET", "/map", "", header("Cookie", "isthmus-session-8251="+b.cookies["isthmus-session-8250"].Value), 401, ""},
		"an asset without a cookie":    {"GET", "/assets/a.css", "", func(r *http.Request) { r.Header.Del("Cookie") }, 200, "an asset"},
		"no asset":                     {"GET", "/assets/../map", "", func(r *http.Request) { r.Header.Del("Cookie") }, 401, ""},
		"no asset, in disguise":        {"GET", "/assets/%2e%2e/map", "", func(r *http.Request) { r.Header.Del("Cookie") }, 401, ""},
		"a GET does not sign out":      {"GET", "/logout", "", nil, 303, ""},
		"a link on another site, without its cookie": {"GET", "/explain?from=a", "", func(r *http.Request) {
			r.Header = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}}
		}, 200, `content="0; url=/explain?from=a"`},
	} {
		var edits []func(*http.Request)
		if c.edit != nil {
			edits = append(edits, c.edit)
		}
		b.want(name, b.send(c.method, c.path, c.body, edits...), c.status, c.text)
	}
	b.want("still in", b.send("GET", "/", ""), 200, "pages for ann")
}

func TestAFormWithAFile(t *testing.T) {
	_, b, s := inside(t, plain)
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	w.WriteField(TokenField, s.Token)
	file, _ := w.CreateFormFile("yaml", "a.yaml")
	io.WriteString(file, "kind: Export")
	w.Close()
	b.want("with the token", b.send("POST", "/plan", body.String(), header("Content-Type", w.FormDataContentType())), 200, "pages for ann")
	without := strings.ReplaceAll(body.String(), s.Token, "")
	b.want("without", b.send("POST", "/plan", without, header("Content-Type", w.FormDataContentType())), 403, "old")
}

func TestLogout(t *testing.T) {
	_, b, s := inside(t, plain)
	cookie := b.cookies["isthmus-session-8250"]
	r := b.send("POST", "/logout", "a=b")
	b.want("logout without the token", r, 403)
	b.want("still in", b.send("GET", "/", ""), 200, "pages for ann")
	r = b.send("POST", "/logout", url.Values{TokenField: {s.Token}}.Encode())
	b.want("logout", r, 200, "Signed out")
	if len(b.cookies) > 0 {
		t.Errorf("the browser keeps %v", b.cookies)
	}
	b.want("the old cookie", b.send("GET", "/", "", func(r *http.Request) { r.AddCookie(cookie) }), 401)
}

func TestCookiesAndHeaders(t *testing.T) {
	for at, want := range map[string]string{
		plain:                        "isthmus-session-8250=ID; Path=/; HttpOnly; SameSite=Strict",
		secure:                       "__Host-isthmus-session=ID; Path=/; HttpOnly; Secure; SameSite=Strict",
		secure + ":443/":             "__Host-isthmus-session=ID; Path=/; HttpOnly; Secure; SameSite=Strict",
		"https://Console.local:9443": "__Host-isthmus-session-9443=ID; Path=/; HttpOnly; Secure; SameSite=Strict",
		"http://[::1]:8250":          "isthmus-session-8250=ID; Path=/; HttpOnly; SameSite=Strict",
		"http://localhost":           "isthmus-session=ID; Path=/; HttpOnly; SameSite=Strict",
	} {
		o, b, _ := once(t, OnceConfig{URL: at, Person: "ann", HowTo: "Ask."})
		b.at = o.url.String()
		path := strings.TrimPrefix(o.URL(), b.at)
		r := b.send("GET", path, "")
		id, _, _ := strings.Cut(strings.SplitN(r.Header.Get("Set-Cookie"), "=", 2)[1], ";")
		if got := strings.ReplaceAll(r.Header.Get("Set-Cookie"), id, "ID"); got != want || len(id) != 43 {
			t.Errorf("%s: %s of %d, want %s", at, got, len(id), want)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": Policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Strict-Transport-Security": map[bool]string{true: "max-age=31536000"}[strings.HasPrefix(b.at, secure)],
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", at, name, got, want)
			}
		}
		if got := b.send("GET", "/", "").Header.Get("Referrer-Policy"); got != "same-origin" {
			t.Errorf("%s: Referrer-Policy %q: forms need an Origin", at, got)
		}
	}
}

func TestURLsOfAConsole(t *testing.T) {
	for at, want := range map[string]string{
		"http://console.example.org":   "https://",
		"http://127.0.0.1.example.org": "https://",
		"ftp://127.0.0.1":              "https://",
		"console.example.org":          "form",
		"https://":                     "form",
		"https://ann:pw@127.0.0.1":     "form",
		"https://127.0.0.1/console":    "form",
		"https://127.0.0.1?a":          "form",
		"https://127.0.0.1#a":          "form",
		"https://a b":                  "URL",
	} {
		if _, err := NewOnce(OnceConfig{URL: at}, slog.Default()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", at, err)
		} else if strings.Contains(err.Error(), "pw") {
			t.Errorf("a password in %v", err)
		}
	}
}

func TestAKeyWorksOnce(t *testing.T) {
	var next []string
	file := filepath.Join(t.TempDir(), "url")
	o, b, log := once(t, OnceConfig{URL: plain, Person: "ann", KeyFile: file, Used: func(u string) { next = append(next, u) }})
	inFile := func() string {
		text, err := os.ReadFile(file)
		info, err2 := os.Stat(file)
		if err != nil || err2 != nil || info.Mode().Perm() != 0o600 {
			t.Fatal(err, err2, info)
		}
		return strings.TrimSuffix(string(text), "\n")
	}
	first := o.URL()
	path := strings.TrimPrefix(first, plain)
	if inFile() != first {
		t.Errorf("the file has %s, not %s", inFile(), first)
	}
	for name, edit := range map[string]func(*http.Request){
		"fetched ahead":             header("Sec-Purpose", "prefetch"),
		"rendered ahead":            header("Sec-Purpose", "prefetch;prerender"),
		"fetched ahead, long ago":   header("Purpose", "prefetch"),
		"asked whether it is there": func(r *http.Request) { r.Method = http.MethodHead },
	} {
		b.want(name, b.send("GET", path, "", edit), 503)
	}
	for _, wrong := range []string{"/enter", "/enter?key=", "/enter?key=" + random(), path + "x", path[:len(path)-1], "/enter?key=%zz"} {
		b.want(wrong, b.send("GET", wrong, ""), 403, "works once", file)
	}
	b.want("a form", b.send("POST", path, ""), 503)
	if len(b.cookies) > 0 || o.URL() != first {
		t.Fatalf("a wrong key gave %v, or used the key up", b.cookies)
	}
	b.want("the key", b.send("GET", path, ""), 200)
	b.want("inside", b.send("GET", "/", ""), 200, "pages for ann")
	b.want("the key again", b.send("GET", path, ""), 403, "works once", file)
	if o.URL() == first || len(next) != 1 || next[0] != o.URL() || inFile() != o.URL() {
		t.Errorf("the next is %s, the owner was told %v, the file says %s", o.URL(), next, inFile())
	}
	id := b.cookies["isthmus-session-8250"].Value
	b.want("the next key", b.send("GET", strings.TrimPrefix(next[0], plain), ""), 200)
	b.want("the session of before", b.send("GET", "/", "", header("Cookie", "isthmus-session-8250="+id)), 401)
	for _, secret := range []string{first, next[0], o.URL(), id, b.cookies["isthmus-session-8250"].Value} {
		if _, key, ok := strings.Cut(secret, "="); ok {
			secret = key
		}
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has a secret: %s", log)
		}
	}
	if !strings.Contains(log.String(), `"msg":"console: signed in","person":"ann"`) || !strings.Contains(log.String(), `"reason":"key"`) {
		t.Errorf("the log lacks who came in, or who did not: %s", log)
	}
	if _, err := NewOnce(OnceConfig{URL: plain, KeyFile: filepath.Join(file, "no")}, slog.Default()); err == nil {
		t.Error("a file that can't be written is no error")
	}
}

func TestOneOfManyUsesAKey(t *testing.T) {
	o, b, _ := once(t, OnceConfig{URL: plain})
	path := strings.TrimPrefix(o.URL(), plain)
	var in atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			w := httptest.NewRecorder()
			b.handler.ServeHTTP(w, httptest.NewRequest("GET", plain+path, nil))
			if len(w.Result().Cookies()) > 0 {
				in.Add(1)
			}
		})
	}
	if all.Wait(); in.Load() != 1 {
		t.Errorf("%d came in by one key", in.Load())
	}
}

// TestAStreamEndsWithItsSession by logout, and when nobody was there for too long.
func TestAStreamEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := newGate(secure, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		g.sessions.life, g.sessions.idle = 8*time.Hour, 2*time.Hour
		began := time.Now()
		var ended time.Duration
		stream := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == LivePath {
				<-r.Context().Done()
				ended = time.Since(began)
			}
		}))
		enter := func() (*browser, Session) {
			b := &browser{t, stream, secure, map[string]*http.Cookie{}}
			w := httptest.NewRecorder()
			g.let(w, b.request("/"), Session{Person: "ann"})
			c := w.Result().Cookies()[0]
			b.cookies[c.Name] = c
			s, _, _, _ := g.sessions.get(c.Value, true)
			return b, s
		}
		b, s := enter()
		go b.send("GET", LivePath, "")
		time.Sleep(time.Minute)
		b.want("logout", b.send("POST", "/logout", "token="+s.Token), 200)
		if synctest.Wait(); ended != time.Minute {
			t.Errorf("logout after a minute; the stream ended after %v", ended)
		}
		b, _ = enter()
		began = time.Now()
		time.Sleep(time.Hour)
		b.want("a person", b.send("GET", "/", "", header("Sec-Fetch-Mode", "navigate")), 200)
		b.want("a script", b.send("GET", "/", "", header("Sec-Fetch-Mode", "same-origin")), 200)
		time.Sleep(time.Hour)
		b.want("a script", b.send("GET", "/", "", header("Sec-Fetch-Mode", "same-origin")), 200)
		b.send("GET", LivePath, "")
		if ended != 3*time.Hour {
			t.Errorf("the stream of a page without anybody ended after %v", ended)
		}
		b.want("and can't begin again", b.send("GET", LivePath, ""), 401)
	})
}
