package pages

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

//go:embed assets/*.css assets/*.js assets/*.svg
var assetFiles embed.FS

//go:embed templates/*.html
var templateFiles embed.FS

// types are the types of assets by the end of their names.
var types = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// assets are the files that pages load. A page names one with a part of its hash, so a browser keeps
// it until it is another.
type assets struct{ files map[string]asset }

type asset struct {
	text, zipped []byte
	version      string
}

func loadAssets() (*assets, error) {
	a := &assets{map[string]asset{}}
	names, err := fs.Glob(assetFiles, "assets/*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := assetFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var zipped bytes.Buffer
		z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		if _, err = z.Write(text); err == nil {
			err = z.Close()
		}
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		a.files[path.Base(name)] = asset{text, zipped.Bytes(), hex.EncodeToString(sum[:8])}
	}
	return a, nil
}

// url is where an asset is.
func (a *assets) url(name string) (string, error) {
	f, ok := a.files[name]
	if !ok {
		return "", fmt.Errorf("no asset %s", name)
	}
	return "/assets/" + name + "?v=" + f.version, nil
}

// ServeHTTP answers with an asset.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a.files[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", types[path.Ext(r.PathValue("name"))])
	h.Set("Cache-Control", "no-cache")
	if r.URL.RawQuery == "v="+f.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Vary", "Accept-Encoding")
	text := f.text
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = f.zipped
	}
	_, _ = w.Write(text)
}

// loadPages reads the templates, each page with the layout and the parts around it.
func loadPages(a *assets) (map[string]*template.Template, error) {
	shared, err := template.New("layout.html").Funcs(template.FuncMap{
		"asset": a.url, "p": printable, "appPath": appPath, "objectPath": objectPath, "objectNamed": objectNamed, "ago": ago,
		"clock": func(t time.Time) string { return t.Format(time.TimeOnly) }, "moment": moment, "lower": strings.ToLower, "count": counted,
		"current": func(at, path string) bool { return at == path || path != "/" && strings.HasPrefix(at, path) },
		"id":      identifier, "dict": dict, "nav": func() []place { return places }, "eventText": eventText,
	}).Funcs(template.FuncMap{
		"name": show.Name, "stamp": show.Stamp, "here": show.Here, "elsewhere": show.Elsewhere, "instanceShown": show.InstanceShown,
		"where": show.Where, "sidecarShown": show.SidecarShown, "mtls": show.MTLS, "view": show.View, "from": show.From, "when": show.When,
		"certificateName": show.CertificateName, "expiry": show.Expiry, "advice": show.Advice, "fingerprint": show.Fingerprint,
		"summary": show.Summarize, "now": show.Now, "then": show.Then, "took": show.Took,
	}).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	pages := map[string]*template.Template{}
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		if slices.Contains([]string{"layout", "parts"}, page) {
			continue
		}
		t, err := shared.Clone()
		if err == nil {
			t, err = t.ParseFS(templateFiles, name)
		}
		if err != nil {
			return nil, err
		}
		pages[page] = t
	}
	return pages, nil
}

// place is a page that every page leads to.
type place struct{ Path, Name string }

var places = []place{
	{"/", "Overview"}, {"/map", "Map"}, {"/apps", "Apps"}, {"/explain", "Explain"}, {"/plan", "Plan"}, {"/objects", "Objects"}, {"/checks", "Checks"},
	{"/trust", "Trust"}, {"/links", "Links"}, {"/calls", "Calls"}, {"/sidecars", "Sidecars"}, {"/events", "Events"},
}

// printable is a text from outside without characters that could change how others read: names come
// from other clusters.
func printable(v any) string {
	lines := strings.Split(fmt.Sprint(v), "\n")
	for i, line := range lines {
		lines[i] = catalog.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// moment is a moment as people read it, in UTC.
func moment(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format("Jan 2 15:04:05.000") }

// counted is a number of things in words.
func counted(n any, what string) (string, error) {
	number, err := strconv.Atoi(fmt.Sprint(n))
	return show.Count(number, what), err
}

// identifier is a text as an ID of an element, the same for the same text.
func identifier(parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprintln(parts...)))
	return "i" + hex.EncodeToString(sum[:6])
}

// dict makes one value of several for a part of a page: names and values in turn.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("a name without a value")
	}
	all := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		all[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return all, nil
}
