package pages

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

//go:embed assets/*.css assets/*.js assets/*.svg
var assetFiles embed.FS

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

// place is a page that every page leads to.
type place struct{ Path, Name string }

var places = []place{
	{"/", "Overview"}, {"/map", "Map"}, {"/apps", "Apps"}, {"/explain", "Explain"}, {"/plan", "Plan"}, {"/objects", "Objects"}, {"/checks", "Checks"},
	{"/trust", "Trust"}, {"/links", "Links"}, {"/calls", "Calls"}, {"/sidecars", "Sidecars"}, {"/events", "Events"},
}

// leadsTo tells whether a path is that of the place, or below it.
func (p place) leadsTo(path string) bool {
	return path == p.Path || p.Path != "/" && strings.HasPrefix(path, p.Path)
}

// plain is a text from outside without characters that could change how others read: names come
// from other clusters. A page shows no other text from outside, but what a person writes into a form.
func plain(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = catalog.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// moment is a moment as people read it, in UTC.
func moment(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format("Jan 2 15:04:05.000") }

// identifier is a text as an ID of an element, the same for the same text.
func identifier(parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprintln(parts...)))
	return "i" + hex.EncodeToString(sum[:6])
}
