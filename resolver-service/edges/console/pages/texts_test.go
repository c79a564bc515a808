package pages

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/net/html"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
)

// TestTextsStayTexts: whatever texts a page shows, it has the same elements with the same attributes. No
// text becomes a script's address, and none has characters that change how others read.
func TestTextsStayTexts(t *testing.T) {
	for name, hostile := range map[string]string{
		"markup":     "%03d\"'><script src=evil.js><img src=x onerror=alert(1)>&lt;\u202e\u2066\u0007",
		"javascript": "javascript:alert(%03d)",
		"query":      "%03d&to=other#+%%2f\u2028",
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				tame, wild := everyPage(t, "%03d name", seed), everyPage(t, hostile, seed)
				for kind, page := range wild {
					if want, got := structure(tame[kind]), structure(page); !slices.Equal(want, got) {
						t.Fatalf("seed %d: %s has the elements\n%v\nin place of\n%v", seed, kind, got, want)
					}
					for node := range page.Descendants() {
						checkNode(t, kind, node)
					}
				}
			}
		})
	}
}

// structure is a page without its texts.
func structure(page *html.Node) (all []string) {
	for node := range page.Descendants() {
		if node.Type == html.ElementNode {
			text := node.Data
			for _, a := range node.Attr {
				text += " " + a.Key
			}
			all = append(all, text)
		}
	}
	return all
}

func checkNode(t *testing.T, page string, node *html.Node) {
	t.Helper()
	if node.Data == "input" || node.Parent.Data == "textarea" {
		return // the person's own words
	}
	texts := []string{}
	if node.Type == html.TextNode {
		texts = append(texts, node.Data)
	}
	for _, a := range node.Attr {
		texts = append(texts, a.Val)
		if a.Key != "href" && a.Key != "src" && a.Key != "action" {
			continue
		}
		u, err := url.Parse(a.Val)
		if err != nil || !slices.Contains([]string{"", "http", "https", "about"}, u.Scheme) || node.Data == "script" && !strings.HasPrefix(a.Val, "/assets/") {
			t.Errorf("%s leads to %q: %v", page, a.Val, err)
		}
		for name, values := range u.Query() {
			if len(values) != 1 || !slices.Contains(parameters, name) {
				t.Errorf("%s leads to %q", page, a.Val)
			}
		}
	}
	for _, r := range strings.Join(texts, "") {
		if r != '\n' && (unicode.Is(unicode.Cf, r) || unicode.IsControl(r)) {
			t.Errorf("%s has the character %q in %.80q", page, r, texts)
		}
	}
}

// parameters are all that a link of a page has.
var parameters = []string{"v", "from", "to", "probe", "app", "steps", "namespace", "cluster", "only", "q", "after", "row", "kind", "over", "zoom", "since", "object", "delete", "restore", "revision"}

// everyPage is each page with a text in each place, and with as much in it as the seed says.
func everyPage(t *testing.T, text string, seed uint64) map[string]*html.Node {
	t.Helper()
	f := &filler{rand.New(rand.NewPCG(seed, 33)), text, 0}
	c, err := New(Options{Log: slog.New(slog.DiscardHandler), Flags: " --flag", Download: f.IntN(3) == 0})
	if err != nil {
		t.Fatal(err)
	}
	c.watch.cluster = f.text()
	shown := map[string]*html.Node{}
	for _, p := range []page{
		&appList{}, &appView{}, &builder{}, &eventView{}, &searchView{}, &callList{}, &checked{}, &eventList{}, &explanation{}, &linkView{}, &linksView{}, &mapView{}, &objectList{},
		&objectView{object: &object{}}, &overview{}, &plan{}, &sidecarList{}, &trustView{},
	} {
		f.fill(reflect.ValueOf(p).Elem())
		switch v := p.(type) {
		case *objectView:
			f.fill(reflect.ValueOf(v.object).Elem())
		case *searchView:
			for i := range v.Groups {
				v.Groups[i].More = withQuery("/apps", "q", v.Groups[i].Kind)
			}
		case *eventView:
			v.Explain = explainPath(v.Explain, v.Explain)
		case *plan:
			v.Reload, v.After = "", v.Before // a path of ours; both pictures or none
		}
		shown[fmt.Sprintf("%T", p)] = rendered(t, c, &content{Page: p, Title: f.text(), Command: f.text(), Live: f.IntN(2) == 0})
	}
	shown["error"] = rendered(t, c, &content{Page: notShown(f.text()), Title: f.text()})
	return shown
}

func rendered(t *testing.T, c *Console, shown *content) *html.Node {
	t.Helper()
	to := httptest.NewRecorder()
	r := &request{Request: httptest.NewRequest("GET", "/plan", nil), Console: c, session: &login.Session{Person: shown.Title, Token: "token"}, now: time.Now()}
	r.render(to, shown)
	page, err := html.Parse(to.Body)
	if err != nil || to.Code != 200 {
		t.Fatalf("%T: status %d, %v", shown.Page, to.Code, err)
	}
	return page
}

// filler fills values in by chance: the same for all texts.
type filler struct {
	*rand.Rand
	pattern string
	texts   int
}

// keywords are texts that pages make a difference of.
var keywords = []string{"", "ready", "stale", "denied", "open", "local", "ok"}

func (f *filler) text() string {
	if f.texts++; f.IntN(4) == 0 {
		return keywords[f.IntN(len(keywords))]
	}
	return fmt.Sprintf(f.pattern, f.texts)
}

func (f *filler) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_800_000_000, 0)))
		return
	case *picture:
		if g := (&v1alpha1.GraphResponse{}); f.IntN(3) > 0 {
			f.fill(reflect.ValueOf(g).Elem())
			m := &v1alpha1.TrafficResponse{ToUnixMs: 1000}
			f.fill(reflect.ValueOf(m).Elem())
			drawn := draw(g, addTraffic(g, m), mapLink, f.text())
			_ = drawn.zoom("", func(zoom string) string { return withQuery("/map", "zoom", zoom) })
			v.Set(reflect.ValueOf(drawn))
		}
		return
	case *chart:
		m, changes := &v1alpha1.TrafficResponse{ToUnixMs: 60_000, Edges: []*v1alpha1.TrafficEdge{{Steps: make([]*v1alpha1.CallTraffic, 6)}}}, make([]change, 2)
		for i := range m.GetEdges()[0].GetSteps() {
			m.Edges[0].Steps[i] = &v1alpha1.CallTraffic{Ends: []uint64{f.Uint64N(2), 0, 0, f.Uint64N(2)}, Buckets: []uint64{f.Uint64N(2)}}
		}
		for i := range changes {
			f.fill(reflect.ValueOf(&changes[i]).Elem())
		}
		of := timesOf(m, windows[0])
		v.Set(reflect.ValueOf([]func(string, []change) *chart{of.rates, of.latencies}[f.IntN(2)](f.text(), changes)))
		return
	case result:
		v.Set(reflect.ValueOf(result{f.text(), f.text(), appPath(f.text())}))
		return
	case eventField:
		v.Set(reflect.ValueOf(eventField{f.text(), f.text(), linkPath(f.text())}))
		return
	case tab:
		v.Set(reflect.ValueOf(tab{f.text(), withQuery("/map", "over", f.text()), f.IntN(2) == 0}))
		return
	case show.Object:
		v.Set(reflect.ValueOf(show.Object{Object: &catalog.AppEndpoints{App: catalog.App{Namespace: f.text(), ID: f.text()}}, Revision: f.text(), Stored: f.text(), Refused: f.text()}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.IntN(3)))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.IntN(3)))
	case reflect.Float64:
		v.SetFloat(f.Float64())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), f.IntN(3), 2))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		if present := f.IntN(4) > 0; present || !optional(v.Type()) {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				f.fill(v.Field(i))
			}
		}
	}
}

// optional tells whether pages do without a value of a type.
func optional(t reflect.Type) bool {
	return slices.Contains([]reflect.Type{
		reflect.TypeFor[*object](), reflect.TypeFor[*checked](), reflect.TypeFor[*catalog.Key](), reflect.TypeFor[*v1alpha1.AppState](),
		reflect.TypeFor[*v1alpha1.Decision](), reflect.TypeFor[*v1alpha1.LinkTrustResponse](), reflect.TypeFor[*v1alpha1.ApplyResponse](),
	}, t)
}
