package console_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// TestTextsOfStrangersAreData: a sidecar says what it likes of itself, in the mark-up of pages, in
// characters that turn the order of others around, and at length.
func TestTextsOfStrangersAreData(t *testing.T) {
	w := newWorld(t, 7)
	app := catalog.App{Namespace: "shop", ID: "stranger"}
	evil := `"><script src=//evil.test></script><img src=x onerror=alert(1) data-hx-get=/logout>` + "\u202e\u2066\u0007"
	long := strings.Repeat("<b>", 84) + "x" // 253 characters
	conn := w.west.connect(app)
	defer conn.Close()
	stream, err := v1alpha1.NewResolverClient(conn).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: &v1alpha1.Hello{
		App: wire.App(app), Version: evil, Runtime: long, Instance: &v1alpha1.Instance{Id: "id" + evil, Address: "127.0.0.1:50999", Zone: "zone"},
	}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	said := false
	for _, path := range []string{
		"/", "/map", "/apps", "/apps/shop/stranger", "/sidecars", "/calls", "/events", "/explain?from=shop/stranger&to=shop/stranger",
		"/explain?from=" + "%22%3E%3Cscript%3E" + "&to=%E2%80%AE", "/map?q=%22%3E%3Cscript%3E%E2%80%AE", "/apps?q=" + strings.Repeat("%3Cb%3E", 84),
		"/events?since=24h&q=%3Cscript%3E", "/objects?q=%3Cscript%3E%E2%80%AE", "/links/%3Cscript%3E", "/apps/%3Cscript%3E/x", "/plan?object=%3Cscript%3E",
		"/objects/%3Cscript%3E/a/b", "/sidecars?q=%3Cscript%3E",
		"/search?q=%3Cscript", "/search?q=stranger", "/events/%3Cscript%3E", "/build?app=%3Cscript%3E%E2%80%AE&to=%3Cscript%3E%E2%80%AE&weight=%22%3E",
	} {
		page := w.get(path)
		said = said || strings.Contains(page.Text(), "<script src=//evil.test>")
		for _, script := range page.Elements("script") {
			if src := script.Attr("src"); !strings.HasPrefix(src, "/assets/") {
				t.Errorf("%s has a script %q", path, src)
			}
		}
		for _, element := range append(page.Elements("img"), page.Elements("b")...) {
			if element.Attr("onerror") != "" || element.Text() == "x" {
				t.Errorf("%s: a text has become an element", path)
			}
		}
		for node := range page.Descendants() {
			if node.Data == "input" {
				continue // what the browser itself has asked for, in a box of its own
			}
			texts := []string{node.Data}
			for _, a := range node.Attr {
				texts = append(texts, a.Val)
			}
			for _, r := range strings.Join(texts, "") {
				if r != '\n' && (unicode.Is(unicode.Cf, r) || unicode.IsControl(r)) {
					t.Errorf("%s has the character %q in %.60q", path, r, texts)
				}
			}
		}
	}
	if !said {
		t.Error("no page shows what the sidecar says")
	}
}
