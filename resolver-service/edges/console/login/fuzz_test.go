package login

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzReturnPath holds that a login returns to this console, as a browser reads the path: it leaves
// out tabs and line breaks, and takes \ for /.
func FuzzReturnPath(f *testing.F) {
	for _, s := range []string{"/", "/map?focus=a#b", "//evil", `/\evil`, "/\t/evil", "/%2f/evil", "/.//evil", "https://evil", "javascript:a",
		"/login?to=/login", "/a/../logout", "", "?a", "/\u2028", "/a;url=b", "http:/evil", "///evil", "/%5cevil", "*", "%2f"} {
		f.Add(s)
	}
	base, _ := url.Parse(secure)
	f.Fuzz(func(t *testing.T, to string) {
		got := returnPath(to)
		seen := strings.ReplaceAll(strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(got), `\`, "/")
		u, err := base.Parse(seen)
		if err != nil || u.Host != base.Host || u.Scheme != "https" || got[0] != '/' || strings.HasPrefix(seen, "//") || len(got) > 3*mostPath {
			t.Errorf("%q returns to %q, which is %v, %v", to, got, u, err)
		}
		if again := returnPath(got); again != got && len(got) <= mostPath {
			t.Errorf("%q returns to %q, and that to %q", to, got, again)
		}
	})
}

// FuzzHost holds that only the console's own names reach anything.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"127.0.0.1:8250", "localhost:8250", "", "LOCALHOST:8250", "127.0.0.1:08250", "evil@localhost:8250", "localhost:8250.evil"} {
		f.Add(s)
	}
	o, err := NewOnce(OnceConfig{URL: plain}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	handler := o.Handler(pages)
	f.Fuzz(func(t *testing.T, host string) {
		r := httptest.NewRequest("GET", "/assets/a.css", nil)
		r.Host = host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		own := host == "127.0.0.1:8250" || host == "localhost:8250"
		if own != (w.Code == 200) || !own && w.Code != 421 {
			t.Errorf("%q: %d", host, w.Code)
		}
	})
}

// FuzzEnter holds that no query but that with the key lets in, and that none uses the key up.
func FuzzEnter(f *testing.F) {
	for _, s := range []string{"", "key=", "key=a&key=b", "key=%zz", "key=a;b", "KEY=a", "key[]=a"} {
		f.Add(s)
	}
	o, err := NewOnce(OnceConfig{URL: plain}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	fuzzDoor(f, o.Handler(pages), plain, "/enter", func() string { return o.URL() })
}

// FuzzCallback holds that no query lets in that does not belong to an attempt of the browser, and
// that the provider is not asked for it.
func FuzzCallback(f *testing.F) {
	for _, s := range []string{"", "state=&code=a", "state=a&code=b", "error=x&state=a", "state=%00", "state=a&state=b"} {
		f.Add(s)
	}
	l, err := newLogin(f.Context(), Config{URL: secure, Issuer: "https://127.0.0.1:1", ClientID: "a",
		Groups: Groups{Read: []string{"*"}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	fuzzDoor(f, l.Handler(pages), secure, callbackPath, func() string { return l.attempts.add(attempt{}) })
}

// fuzzDoor sends queries to a door, with a cookie of a login that has the same in it.
func fuzzDoor(f *testing.F, handler http.Handler, at, path string, secret func() string) {
	f.Fuzz(func(t *testing.T, query string) {
		before := secret()
		r := httptest.NewRequest("GET", at+path, nil)
		r.URL.RawQuery = query
		r.AddCookie(&http.Cookie{Name: "__Host-isthmus-login", Value: r.URL.Query().Get("state")})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 403 {
			t.Errorf("%q: %d", query, w.Code)
		}
		for _, c := range w.Result().Cookies() {
			if c.MaxAge >= 0 {
				t.Errorf("%q: a cookie %v", query, c)
			}
		}
		if strings.Contains(w.Body.String(), before) || path == "/enter" && secret() != before {
			t.Errorf("%q shows the secret, or uses it up", query)
		}
	})
}
