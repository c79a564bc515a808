package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

const (
	mostSessions = 1000
	mostForm     = 4 << 20 // bytes
	mostPath     = 1024    // bytes of a path to return to
)

// LivePath is where pages listen for changes. A stream ends with its session. Like all that scripts
// fetch, it does not count as use: a forgotten page does not keep a session.
const LivePath = "/live"

// Gate lets people in to pages, and keeps everybody else out. [NewOnce] and [NewOIDC] make one.
type Gate struct {
	url      *url.URL
	names    []string // hosts that the console answers to
	sessions sessions[Session]
	doors    map[string]http.HandlerFunc // how one gets a session, by path
	stranger http.HandlerFunc            // answers for a page without a session
	log      *slog.Logger
	refusals *throttle.Log
}

// newGate makes a gate without doors. The URL is the console's own, as browsers see it.
func newGate(at string, log *slog.Logger) (*Gate, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, fmt.Errorf("the console's URL: %w", err)
	}
	usual := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	u.Host = strings.TrimSuffix(u.Host, usual) // as browsers do
	bare := url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}
	if u.Path = strings.TrimSuffix(u.Path, "/"); u.Hostname() == "" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
		return nil, fmt.Errorf("the console's URL %q is not of the form https://console.example.org", u.Redacted())
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, fmt.Errorf("the console's URL %q: beyond loopback it must begin with https://", u.Redacted())
	}
	g := &Gate{url: &bare, names: []string{bare.Host}, log: log, refusals: throttle.New(log, throttle.Interval)}
	g.sessions.most = mostSessions
	if ip, err := netip.ParseAddr(bare.Hostname()); err == nil && ip.IsLoopback() {
		g.names = append(g.names, strings.TrimSuffix(net.JoinHostPort("localhost", bare.Port()), ":"))
	}
	return g, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (g *Gate) tls() bool { return g.url.Scheme == "https" }

// Handler guards pages: they get only requests of people with a session, see [SessionOf], and those
// for assets. It sets the headers that keep browsers careful; pages may set Cache-Control anew.
func (g *Gate) Handler(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.secure(w.Header())
		door := g.doors[r.URL.Path]
		switch {
		case !g.ours(w, r):
		case door != nil:
			g.enter(door, w, r)
		case asset(r):
			pages.ServeHTTP(w, r)
		default:
			g.guard(pages, w, r)
		}
	})
}

// asset tells whether a request is for what everybody may see.
func asset(r *http.Request) bool {
	return r.Method != http.MethodPost && strings.HasPrefix(r.URL.Path, "/assets/") && path.Clean(r.URL.Path) == r.URL.Path
}

// ours tells whether a request is for this console, and not caused by another site. A name of
// another site may well lead to this machine, so the name counts.
func (g *Gate) ours(w http.ResponseWriter, r *http.Request) bool {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !slices.Contains(g.names, r.Host):
		g.refused(r, "host", "host", clip(r.Host))
		http.Error(w, fmt.Sprintf("This console answers to %s. Open %s. If you forward a port, "+
			"forward it from the same number.", strings.Join(g.names, " and "), g.url), http.StatusMisdirectedRequest)
	case !safe && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "This console knows GET, HEAD and POST.", http.StatusMethodNotAllowed)
	case !safe && (origin != "" && origin != g.url.Scheme+"://"+r.Host || site != "" && site != "same-origin" && site != "none"):
		g.refused(r, "origin", "origin", clip(origin))
		show(w, http.StatusForbidden, page{Title: "Refused", To: "/", Link: "To the console", Text: []string{
			"Another site has sent this form. The console takes its own forms only; nothing was changed."}})
	default:
		return true
	}
	return false
}

// enter opens a door to a request that a person means. What browsers and proxies fetch ahead would
// use up a key that works once.
func (g *Gate) enter(door http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	purpose := r.Header.Get("Sec-Purpose") + r.Header.Get("Purpose")
	if r.Method != http.MethodGet || strings.Contains(purpose, "prefetch") {
		http.Error(w, "Open this page itself; it is not fetched ahead.", http.StatusServiceUnavailable)
		return
	}
	door(w, r)
}

// guard serves a request of somebody with a session.
func (g *Gate) guard(pages http.Handler, w http.ResponseWriter, r *http.Request) {
	live, id := r.URL.Path == LivePath, ""
	if cookie, err := r.Cookie(g.cookieName("session")); err == nil {
		id = cookie.Value
	}
	s, gone, until, ok := g.sessions.get(id, byPerson(r))
	if !ok {
		g.withoutSession(w, r)
		return
	}
	if r.Method == http.MethodPost && !g.meant(&s, w, r) {
		return
	}
	if r.URL.Path == "/logout" {
		g.logout(id, &s, w, r)
		return
	}
	ctx := WithSession(r.Context(), &s)
	if live {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
		defer context.AfterFunc(gone, cancel)()
	}
	pages.ServeHTTP(w, r.WithContext(ctx))
}

// byPerson tells whether a person has caused a request, rather than a page that keeps itself fresh.
func byPerson(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return r.Method == http.MethodPost || r.URL.Path != LivePath && (mode == "" || mode == "navigate")
}

// meant tells whether a form shows its session's token.
func (g *Gate) meant(s *Session, w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	err := errors.Join(r.ParseForm(), r.ParseMultipartForm(mostForm)) // of which one fits
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		show(w, http.StatusRequestEntityTooLarge, page{Title: "Too large", Text: []string{
			fmt.Sprintf("The console takes forms of %d MB at most. Use isthmus apply.", mostForm>>20)}})
		return false
	}
	if subtle.ConstantTimeCompare([]byte(r.PostForm.Get(TokenField)), []byte(s.Token)) == 1 {
		return true
	}
	g.refused(r, "token", "person", s.Person)
	show(w, http.StatusForbidden, page{Title: "This form is old", To: "/", Link: "To the console", Text: []string{
		"Nothing was changed. Go back, reload the page, and send the form again."}})
	return false
}

// withoutSession answers somebody who is not in. A browser that follows another site's link leaves
// out the SameSite=Strict cookie, so it is sent on to the same page from a page of ours first.
func (g *Gate) withoutSession(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		show(w, http.StatusUnauthorized, page{Title: "You are not signed in", To: "/", Link: "To the console", Text: []string{
			"Your session has ended; nothing was changed. Go back, keep a copy of what you wrote, sign in, and send it anew."}})
	case !byPerson(r): // a script could do nothing with a login
		http.Error(w, "Your session has ended; reload the page.", http.StatusUnauthorized)
	case r.Header.Get("Sec-Fetch-Site") == "cross-site":
		onward(w, returnPath(r.URL.RequestURI()))
	default:
		g.stranger(w, r)
	}
}

// let lets a person in: a new session, and its cookie. A session that the browser had ends.
func (g *Gate) let(w http.ResponseWriter, r *http.Request, s Session) {
	if old, err := r.Cookie(g.cookieName("session")); err == nil {
		g.sessions.take(old.Value)
	}
	s.Token = random()
	http.SetCookie(w, g.cookie("session", g.sessions.add(s), http.SameSiteStrictMode, 0))
}

func (g *Gate) logout(id string, s *Session, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	g.sessions.take(id)
	http.SetCookie(w, g.cookie("session", "", http.SameSiteStrictMode, -1))
	g.log.Info("console: signed out", "person", s.Person, "address", r.RemoteAddr)
	show(w, http.StatusOK, page{Title: "Signed out", To: "/", Link: "Sign in again", Text: []string{
		"Your session has ended. If others use this browser, sign out at your identity provider, too."}})
}

// cookieName has the port in it: cookies know none, and another console may run beside this one.
// Browsers take the prefix only from the very host, by TLS.
func (g *Gate) cookieName(of string) string {
	name := strings.TrimSuffix("isthmus-"+of+"-"+g.url.Port(), "-")
	if g.tls() {
		return "__Host-" + name
	}
	return name
}

func (g *Gate) cookie(of, value string, site http.SameSite, seconds int) *http.Cookie {
	return &http.Cookie{Name: g.cookieName(of), Value: value, Path: "/", MaxAge: seconds,
		Secure: g.tls(), HttpOnly: true, SameSite: site}
}

// refused notes a refusal in the log; reason is one of a few.
func (g *Gate) refused(r *http.Request, reason string, args ...any) {
	g.refusals.Warn(reason, "console: refused a request",
		append([]any{"reason", reason, "method", r.Method, "address", r.RemoteAddr}, args...)...)
}

// clip bounds what an outsider can put into the log or a page.
func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), 253)], "\uFFFD") }

// doorPaths are no place to return to: they change whether one is in.
var doorPaths = []string{"/enter", "/login", "/login/callback", "/logout"}

// returnPath is a path of the console to go to; "/" in place of another site, however it is
// disguised. What url.Parse lets through comes out of it escaped.
func returnPath(to string) string {
	u, err := url.Parse(to)
	switch {
	case err != nil || len(to) > mostPath || u.Scheme != "" || u.Host != "",
		!strings.HasPrefix(to, "/") || strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, `/\`),
		slices.Contains(doorPaths, path.Clean(u.Path)):
		return "/"
	}
	return u.RequestURI()
}
