package pages

import (
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
)

// FuzzParameters holds what pages make of an address: an error of the person's, or something that
// leads to the same again.
func FuzzParameters(f *testing.F) {
	f.Add("shop/orders", "2", "100", "AppEndpoints/shop/checkout", "AppEndpoints shop/checkout, spec.endpoints[1] (line 7)")
	f.Add("*/*", "-1", "99999999999", "Cluster/east", "spec.endpoints[99999999999999999999]")
	f.Fuzz(func(t *testing.T, app, steps, row, key, rule string) {
		values := map[string]string{"app": app, "steps": steps, "row": row, "namespace": app, "q": rule, "cluster": key}
		if q, err := mapQueryOf(func(name string) string { return values[name] }); err == nil {
			if again := httptest.NewRequest("GET", q.At(q.From), nil); again.FormValue("app") != app || again.FormValue("q") != strings.TrimSpace(rule) {
				t.Errorf("%+v leads to %s", q, q.At(q.From))
			}
		}
		if k, err := keyNamed(key); err == nil && named(k) != key {
			t.Errorf("%q names %v, which is named %q", key, k, named(k))
		}
		o := &object{Lines: linesOf("a\n  b\n- c\n"), starts: []int{2, 3, -1, 9}}
		if _, path, ok := ruleKey(rule); ok {
			o.mark(path)
		}
		o.mark(rule)
	})
}

// FuzzPlanText holds that a text is objects or has mistakes, each at a line of it, and that the page with
// the text has no element of the text's own.
func FuzzPlanText(f *testing.F) {
	f.Add("apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: cart}\nspec: {endpoints: [{app: orders}]}\n")
	f.Add("a: [<script>alert(1)</script>\n\t\"</textarea><img src=x>")
	c, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v := &plan{Text: text}
		manifests := v.read()
		if (manifests == nil) != (len(v.Mistakes) > 0) {
			t.Fatalf("%d objects and the mistakes %v", len(manifests), v.Mistakes)
		}
		for _, m := range v.Mistakes {
			if m.Line < 0 || m.Text == "" {
				t.Errorf("mistake %+v", m)
			}
		}
		for _, m := range manifests {
			if _, err := keyNamed(named(m.Key())); err != nil {
				t.Error(err)
			}
			_ = api.EncodeYAML(m.Object)
		}
		to := httptest.NewRecorder()
		r := &request{Request: httptest.NewRequest("POST", "/plan", nil), Console: c, session: &login.Session{Person: text, Token: "t"}, now: time.Now()}
		r.render(to, &content{Page: v, Title: text, Command: text})
		page, err := html.Parse(to.Body)
		if err != nil || to.Code != 200 {
			t.Fatalf("status %d, %v", to.Code, err)
		}
		for node := range page.Descendants() {
			ours := slices.ContainsFunc(node.Attr, func(a html.Attribute) bool { return a.Key == "src" && strings.HasPrefix(a.Val, "/assets/keys.js?v=") })
			if node.Type == html.ElementNode && !ours && (node.Data == "script" || node.Data == "iframe") {
				t.Errorf("the text has become a %s", node.Data)
			}
		}
	})
}
