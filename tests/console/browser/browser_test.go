package browser

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// right is a page without a fault.
const right = `<!doctype html><html lang="en"><head><title>Right</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/style.css"></head>
<body><main><h1>Right</h1>
<a href="/second">Second  page</a>
<form action="/second"><label for="app">App</label> <input id="app" name="app" value="old">
<label>Namespace <select name="ns"><option>shop</option><option>bank</option></select></label>
<label><input type="checkbox" name="all"> All</label>
<button>Explain</button></form>
<p id="said">Without scripts</p></main><script src="/script.js"></script></body></html>`

const style = `
body { background: white; color: black; line-height: 24px } a { display: inline-block } a { color: #0000ee } @media (prefers-reduced-motion) { #said { display: none } }
@media (prefers-color-scheme: dark) { body { background: black; color: white } a { color: #aabbff } }`

// files are what the server of these tests has.
var files = map[string]string{
	"/style.css":   style,
	"/script.js":   `document.getElementById('said').textContent = 'With scripts'`,
	"/favicon.ico": "",
	"/":            right,
	"/second":      whole("<h1>Second</h1><pre id=query></pre>"),
	"/wide":        whole("<h1>Wide</h1><div class=table style='width: 400px'>x</div>"),
	"/unlabelled":  whole("<h1>Unlabelled</h1><input>"),
	"/pale":        whole("<h1>Pale</h1><p style='color: #ccc; background: white'>hardly legible</p>"),
	"/untitled":    strings.Replace(whole("<h1>Untitled</h1>"), "<title>Page</title>", "", 1),
	"/throws":      whole("<h1>Throws</h1><script>setTimeout(() => { throw new Error('from a timer') })</script>"),
	"/says":        whole("<h1>Says</h1><script>console.error('said', 7)</script>"),
	"/asks":        whole("<h1>Asks</h1><img alt='' src='/missing.png'>"),
	"/elsewhere":   whole("<h1>Elsewhere</h1><img alt='' src='http://elsewhere.example/picture.png'>"),
	"/quirks":      "<html lang=en><title>Quirks</title><h1>Quirks</h1>",
	"/bare":        whole(`<style>:focus { outline: none }</style><h1>Bare</h1><a href="/">Bare link</a>`),
	"/faint":       whole(`<style>:focus { outline: 2px solid #eee }</style><h1>Faint</h1><a href="/">Faint link</a>`),
	"/twins":       whole(`<h1>Twins</h1><a href="/">Go</a> <button>Go</button>`),
	"/later":       whole(`<h1>Later</h1><p id=p></p><script>setTimeout(() => { p.textContent = 'now' }, 300)</script>`),
}

func whole(body string) string {
	return `<!doctype html><html lang="en"><head><title>Page</title></head><body><main>` + body + `</main></body></html>`
}

// serve serves the files. Those below /strict have a policy that allows no inline script or style.
func serve(w http.ResponseWriter, r *http.Request) {
	path, strict := strings.CutPrefix(r.URL.Path, "/strict")
	text, ok := files[path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	kinds := map[string]string{".css": "text/css", ".js": "text/javascript", ".ico": "image/x-icon", "": "text/html; charset=utf-8"}
	w.Header().Set("Content-Type", kinds[filepath.Ext(path)])
	if strict || path == "/" {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'")
	}
	http.SetCookie(w, &http.Cookie{Name: "visited", Value: "yes", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	if r.URL.RawQuery != "" {
		text = strings.Replace(text, "id=query>", "id=query>"+r.URL.RawQuery, 1)
	}
	fmt.Fprint(w, text)
}

// open starts a browser and a server.
func open(t *testing.T) (*Page, string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(serve))
	t.Cleanup(server.Close)
	return Start(t, Options{}).Page(t), server.URL
}

// TestAPageWithoutAFault has none found, by any of the checks.
func TestAPageWithoutAFault(t *testing.T) {
	p, url := open(t)
	if status := p.Open(url); status != http.StatusOK || p.Status() != http.StatusOK || p.Title() != "Right" {
		t.Errorf("status %d, %d, title %q", status, p.Status(), p.Title())
	}
	p.Await("With scripts")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 1440} {
			p.Prefer("prefers-color-scheme", scheme)
			p.Viewport(width, 800)
			if found := p.Axe("best-practice"); len(found) > 0 {
				t.Errorf("%s, %d px: axe-core finds %v", scheme, width, found)
			}
			if wide := p.Overflow(); len(wide) > 0 {
				t.Errorf("%d px: it scrolls sideways: %v", width, wide)
			}
		}
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
}

// TestFaultsAreFound makes each fault that a page may have.
func TestFaultsAreFound(t *testing.T) {
	p, url := open(t)
	for path, want := range map[string]string{
		"/throws":        "from a timer",
		"/says":          "console.error: said 7",
		"/asks":          "404",
		"/missing":       "404",
		"/elsewhere":     "net::ERR_NAME_NOT_RESOLVED",
		"/quirks":        "QuirksModeIssue",
		"/strict/says":   "content security policy: script-src",
		"/strict/bare":   "content security policy: style-src",
		"/strict/wide":   "content security policy: style-src",
		"/strict/throws": "content security policy: script-src",
	} {
		p.Open(url + path)
		p.AwaitFault(want)
	}
	p.Viewport(320, 800)
	for path, want := range map[string]string{"/unlabelled": "label", "/pale": "color-contrast", "/untitled": "document-title"} {
		p.Open(url + path)
		found := p.Axe()
		if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == want }) {
			t.Errorf("%s: axe-core finds %v; want %s", path, found, want)
		}
	}
	p.Open(url + "/wide")
	if wide := strings.Join(p.Overflow(), " "); !strings.Contains(wide, "div.table") {
		t.Errorf("what is wide: %q; want the table", wide)
	}
	p.Viewport(1440, 800)
	if wide := p.Overflow(); len(wide) > 0 {
		t.Errorf("at 1440 px nothing is: %q", wide)
	}
	p.Faults() // Chromium's own word for the field without a name
}

// TestPagesAreUsed by what is written on them.
func TestPagesAreUsed(t *testing.T) {
	p, url := open(t)
	p.Open(url)
	p.Click("Second page")
	if p.URL() != url+"/second" || p.Text() != "Second" {
		t.Errorf("at %s: %q", p.URL(), p.Text())
	}
	p.Open(url)
	if got := p.Value("App"); got != "old" {
		t.Errorf("the field has %q", got)
	}
	p.Fill("App", "orders & more")
	p.Choose("Namespace", "bank")
	p.Click("All")
	p.Click("Explain")
	if text := p.Text(); !strings.Contains(text, "app=orders+%26+more&ns=bank&all=on") {
		t.Errorf("the form has sent %q", text)
	}
	p.Open(url + "/later")
	p.Await("now")
	if cookies := p.Cookies(); len(cookies) != 1 || cookies[0].Name != "visited" || !cookies[0].HTTPOnly || cookies[0].SameSite != "Strict" {
		t.Errorf("cookies %+v", cookies)
	}
}

// TestPagesAreUsedByKeys alone, and one sees where the keyboard is, unless the page hides it.
func TestPagesAreUsedByKeys(t *testing.T) {
	p, url := open(t)
	p.Open(url)
	for _, want := range []Focus{
		{Element{Role: "link", Name: "Second page"}, "a", true},
		{Element{Role: "textbox", Name: "App"}, "input", true},
		{Element{Role: "combobox", Name: "Namespace"}, "select", true},
		{Element{Role: "checkbox", Name: "All"}, "input", true},
		{Element{Role: "button", Name: "Explain"}, "button", true},
	} {
		p.Press("Tab")
		got := p.Focus()
		got.id = 0
		if got != want {
			t.Errorf("focus %+v, want %+v", got, want)
		}
	}
	p.Press("Shift+Tab", "Space", "Shift+Tab", "Shift+Tab", "x", "Enter")
	if text := p.Text(); !strings.Contains(text, "app=x&ns=shop&all=on") {
		t.Errorf("by keys the form has sent %q", text)
	}
	for _, path := range []string{"/bare", "/faint"} {
		p.Open(url + path)
		if p.Press("Tab"); p.Focus().Tag != "a" || p.Focus().Visible {
			t.Errorf("%s: focus %+v; want one that nobody sees", path, p.Focus())
		}
	}
	p.Open(url + "/second")
	if p.Press("Tab"); p.Focus().Tag != "body" {
		t.Errorf("focus %+v; want none", p.Focus())
	}
}

// TestPagesLookAsPeopleLike: in the dark, without motion, without scripts; and are kept as pictures.
func TestPagesLookAsPeopleLike(t *testing.T) {
	artefacts := t.TempDir()
	t.Setenv("ISTHMUS_ARTEFACTS", artefacts)
	p, url := open(t)
	p.Open(url)
	const background = "getComputedStyle(document.body).backgroundColor"
	p.Prefer("prefers-color-scheme", "dark")
	if got := Evaluate[string](p, background); got != "rgb(0, 0, 0)" {
		t.Errorf("in the dark: %s", got)
	}
	if !strings.Contains(p.Text(), "With scripts") {
		t.Errorf("text %q", p.Text())
	}
	p.Prefer("prefers-reduced-motion", "reduce")
	if got := Evaluate[string](p, background); got != "rgb(0, 0, 0)" || strings.Contains(p.Text(), "With") {
		t.Errorf("with less motion in the dark: %s, %q", got, p.Text())
	}
	p.Prefer("prefers-reduced-motion", "")
	p.WithoutScripts()
	p.Open(url)
	if !strings.Contains(p.Text(), "Without scripts") {
		t.Errorf("text %q", p.Text())
	}
	p.Fill("App", "orders")
	dark := p.Screenshot("dark")
	p.Prefer("prefers-color-scheme", "light")
	light := p.Screenshot("light")
	for _, file := range []string{dark, light} {
		if info, err := os.Stat(file); err != nil || info.Size() < 1000 || filepath.Dir(file) != filepath.Join(artefacts, t.Name()) {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	p.Click("Explain")
	if p.URL() != url+"/second?app=orders&ns=shop" {
		t.Errorf("without scripts at %s", p.URL())
	}
}

// TestPeopleShareNoCookies.
func TestPeopleShareNoCookies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(serve))
	t.Cleanup(server.Close) // after the browser, which may still ask for a picture
	b := Start(t, Options{Hosts: map[string]string{"console.example": "127.0.0.1"}})
	one, other := b.Page(t), b.Page(t)
	one.Open(server.URL)
	if cookies := other.Cookies(); len(cookies) > 0 {
		t.Errorf("cookies %+v", cookies)
	}
	other.Open(strings.Replace(server.URL, "127.0.0.1", "console.example", 1))
	if other.Title() != "Right" {
		t.Errorf("by name: %q", other.Title())
	}
}

// TestCertificates: one that is not trusted lets nobody in.
func TestCertificates(t *testing.T) {
	programstest.Need(t, "chromium")
	server := httptest.NewTLSServer(http.HandlerFunc(serve))
	t.Cleanup(server.Close)
	t.Run("trusted", func(t *testing.T) {
		p := Start(t, Options{Trust: certificate(server)}).Page(t)
		if status := p.Open(server.URL); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	})
	t.Run("not trusted", func(t *testing.T) {
		r := record(t, func(t testing.TB) { Start(t, Options{}).Page(t).Open(server.URL) })
		if !strings.Contains(r.said, "ERR_CERT_AUTHORITY_INVALID") {
			t.Errorf("the test says %q", r.said)
		}
	})
}

// certificate is the server's own, in PEM.
func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// TestAFaultFailsTheTest that has not asked for it, and so does what is not there.
func TestAFaultFailsTheTest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(serve))
	t.Cleanup(server.Close)
	b := Start(t, Options{})
	for name, c := range map[string]struct {
		test func(p *Page)
		want string
	}{
		"a fault that nobody asks for": {func(p *Page) { p.Open(server.URL + "/says"); p.Text() }, "console.error: said 7"},
		"a fault that is asked for":    {func(p *Page) { p.Open(server.URL + "/says"); p.AwaitFault("said 7") }, ""},
		"two of a name":                {func(p *Page) { p.Open(server.URL + "/twins"); p.Click("Go") }, "has 2 of the name"},
		"axe-core without scripts":     {func(p *Page) { p.WithoutScripts(); p.Axe() }, "does not run"},
		"no such key":                  {func(p *Page) { p.Press("Hyper") }, "no such key"},
		"no such option":               {func(p *Page) { p.Open(server.URL); p.Choose("Namespace", "none") }, `no option "none"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, func(t testing.TB) { c.test(b.Page(t)) })
			if c.want == "" && r.said != "" || !strings.Contains(r.said, c.want) {
				t.Errorf("the test says %q, want %q", r.said, c.want)
			}
		})
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	said     string
	cleanups []func()
}

// record runs a test, with its end, and returns what it said.
func record(t *testing.T, test func(t testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range slices.Backward(r.cleanups) {
				cleanup()
			}
		}()
		test(r)
	}()
	<-done
	return r
}

func (r *recorder) Helper()                           {}
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) + "\n" }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// TestAxeIsTheOneThatItsNoteNames.
func TestAxeIsTheOneThatItsNoteNames(t *testing.T) {
	note, err := os.ReadFile("testdata/axe/README.md")
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte(axe))
	if !strings.Contains(string(note), "`"+hex.EncodeToString(hash[:])+"`") {
		t.Errorf("axe.min.js has the hash %x, and its note another", hash)
	}
}
