package console

import (
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/console/browser"
)

// pages are all pages of a console, each with what it must show whatever the browser can do.
var pages = []struct{ name, path, shows string }{
	{"overview", "/", "HEALTHY"},
	{"map", "/map", "shop/checkout"},
	{"map-of-an-app", "/map?app=shop/orders&steps=2", "shop/cart"},
	{"apps", "/apps", "shop/ledger"},
	{"app", "/apps/shop/checkout", "Who may call it"},
	{"explain", "/explain", "Caller"},
	{"explanation", "/explain?from=shop/checkout&to=shop/orders", "spec.endpoints[0]"},
	{"probe", "/explain?from=shop/cart&to=shop/orders&probe=1", "connected"},
	{"plan", "/plan?object=AppEndpoints/shop/checkout", "Objects, as YAML"},
	{"deletion", "/plan?delete=AppExport/shop/orders", "What would change"},
	{"objects", "/objects", "shop/checkout"},
	{"object", "/objects/AppEndpoints/shop/checkout", "History"},
	{"checks", "/checks", "gateway-port"},
	{"trust", "/trust", "own certificate"},
	{"links", "/links", "Invitations"},
	{"link", "/links/east", "What its trust takes"},
	{"calls", "/calls", "shop/checkout"},
	{"sidecars", "/sidecars", "daprd"},
	{"events", "/events", "objects written"},
	{"search", "/search?q=ledger", "Apps"},
	{"build", "/build?app=shop/cart&to=shop/ledger&cluster=east", "Show what this would change"},
}

// TestEveryPage can be read and used by everybody: on a telephone and a screen, in light and dark,
// with a keyboard alone, and without JavaScript.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	m := newMesh(t, nil)
	for range 3 {
		if err := m.call("checkout", "orders"); err != nil {
			t.Fatal(err)
		}
	}
	b := browser.Start(t, browser.Options{})
	p := b.Page(t)
	at := m.open(p, m.west)
	for _, page := range pages {
		if status := p.Open(at + page.path); status != 200 {
			t.Fatalf("%s: status %d", page.path, status)
		}
		p.Await(page.shows)
		p.Await("The same on the command line: isthmus ")
		p.Everywhere(page.name)
	}
	keyboard(t, m, p, at)
	scriptless(t, m, b.Page(t))
}

// scriptless goes to all pages without JavaScript, and makes a lookup.
func scriptless(t *testing.T, m *mesh, p *browser.Page) {
	p.WithoutScripts()
	at := m.open(p, m.west)
	for _, page := range pages {
		if status := p.Open(at + page.path); status != 200 {
			t.Errorf("without scripts: %s: status %d", page.path, status)
		}
		p.Await(page.shows)
	}
	p.Open(at + "/explain")
	p.Fill("Caller", "shop/cart")
	p.Fill("asks for", "orders")
	p.Click("Explain the call")
	p.Await("shop/cart asks for shop/orders")
}

// keyboard goes through pages by the Tab key, also to a line that calls go over, and makes a lookup by
// keys alone.
func keyboard(t *testing.T, m *mesh, p *browser.Page, at string) {
	if err := m.call("checkout", "orders"); err != nil {
		t.Fatal(err)
	}
	p.Prefer("prefers-color-scheme", "light")
	p.Viewport(1440, 900)
	for _, path := range []string{"/", "/explain?from=shop/checkout&to=shop/orders", "/map", "/plan?object=AppEndpoints/shop/checkout"} {
		p.Open(at + path)
		if path == "/" {
			p.Await("calls/s")
		}
		var stops []string
		for {
			p.Press("Tab")
			f := p.Focus()
			name := f.Role + " " + f.Name
			if f.Tag == "body" || slices.Contains(stops, name) && len(stops) > 15 || len(stops) > 60 {
				break
			}
			if !f.Visible {
				t.Errorf("%s: nobody sees that %s has the focus", path, name)
			}
			if strings.TrimSpace(f.Name) == "" {
				t.Errorf("%s: a %s without a name has the focus", path, f.Tag)
			}
			stops = append(stops, name)
		}
		if len(stops) < 15 || stops[0] != "link Skip to the page" {
			t.Errorf("%s: the stops are %q", path, stops)
		}
	}
	p.Open(at + "/explain")
	p.Press("Tab", "Enter", "Tab") // past everything above the page
	if f := p.Focus(); f.Name != "Caller" {
		t.Fatalf("after the link that skips, the focus is at %q", f.Name)
	}
	p.Fill("Caller", "shop/cart")
	p.Press("Tab")
	p.Fill("asks for", "shop/orders")
	p.Press("Enter")
	p.Await("shop/cart asks for shop/orders")
}
