// Package site_test reads the static site of the docs in a browser, as "make site" writes it.
package site_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/console/browser"
)

// TestSite searches the site, from a server and from a folder, follows a result, and holds pages to WCAG.
func TestSite(t *testing.T) {
	b := browser.Start(t, browser.Options{})
	out := t.TempDir()
	if text, err := exec.CommandContext(t.Context(), "go", "-C", "../../tools", "run", "./site", "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("build the site: %v\n%s", err, text)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(out)))
	defer server.Close()
	for _, at := range []string{server.URL, "file://" + out} {
		p := b.Page(t)
		p.Open(at + "/docs/how-to/upgrade.html")
		p.Fill("Search", "actors another cl")
		p.Await("Calling actors in another cluster")
		p.Keep("search")
		p.Fill("Search", "isthmus tap")
		p.Await("The command line: isthmus tap")
		p.Click("The command line: isthmus tap")
		p.Await("Show single calls as they end")
		if url := p.URL(); !strings.HasSuffix(url, "/docs/reference/cli.html#isthmus-tap") {
			t.Errorf("the result leads to %s", url)
		}
		p.Fill("Search", "xyzzy")
		p.Await("Nothing found.")
	}
	p := b.Page(t)
	for _, page := range []string{"/index.html", "/docs/reference/cli.html", "/docs/explanation/concepts.html"} {
		p.Open(server.URL + page)
		for _, width := range []int64{1280, 390} {
			p.Viewport(width, 800)
			p.Keep(strings.ReplaceAll(strings.Trim(page, "/"), "/", "-"))
			if wide := p.Overflow(); len(wide) > 0 {
				t.Errorf("%s at %d pixels scrolls sideways: %v", page, width, wide)
			}
		}
		for _, v := range p.Axe() {
			t.Errorf("%s: %s", page, v)
		}
	}
}
