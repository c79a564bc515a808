package pages

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// object is an object as a page shows it: its YAML, line by line.
type object struct {
	Key      catalog.Key
	Revision string
	Source   string // file:line, or what it is derived from
	Refused  string // why what is stored now can't be used
	Lines    []line

	starts []int // the lines of its endpoints
}

// line is a line of a text.
type line struct {
	Number int
	Text   string
	Marked bool
}

func objectOf(o *show.Object) *object {
	v := &object{Key: o.Key(), Revision: o.Revision, Source: o.Stored, Refused: o.Refused, Lines: linesOf(string(api.EncodeYAML(o.Object)))}
	if s, ok := o.Object.(*catalog.AppEndpoints); ok {
		for i := range s.Endpoints {
			v.starts = append(v.starts, int(s.Endpoints[i].Line))
		}
	}
	return v
}

func linesOf(text string) (all []line) {
	for i, one := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		all = append(all, line{Number: i + 1, Text: one})
	}
	return all
}

// mark marks the lines of an endpoint, by its path.
func (o *object) mark(path string) {
	var i int
	if o == nil {
		return
	}
	if n, err := fmt.Sscanf(path, "spec.endpoints[%d]", &i); n != 1 || err != nil || i < 0 || i >= len(o.starts) {
		return
	}
	from := o.starts[i]
	if from < 1 || from > len(o.Lines) {
		return
	}
	indent := indentOf(o.Lines[from-1].Text)
	o.Lines[from-1].Marked = true
	for n := from; n < len(o.Lines) && indentOf(o.Lines[n].Text) > indent; n++ {
		o.Lines[n].Marked = true
	}
}

func indentOf(text string) int { return len(text) - len(strings.TrimLeft(text, " ")) }

// Path is the page of the object.
func (o *object) Path() string { return objectPath(o.Key) }

// Plan is the page that changes it.
func (o *object) Plan() string { return withQuery("/plan", "object", named(o.Key)) }

// Delete is the page that shows what its deletion would do.
func (o *object) Delete() string { return withQuery("/plan", "delete", named(o.Key)) }

// origin is the object's source, behind its name.
func (o *object) origin() string { return strings.TrimSuffix(", "+plain(o.Source), ", ") }

// named is a key as pages name it in a query: Kind/namespace/name, or Kind/name.
func named(k catalog.Key) string { return strings.TrimPrefix(api.KeyPath(k), api.KeyPrefix) }

func keyNamed(text string) (catalog.Key, error) {
	key, err := api.ParseKeyPath(api.KeyPrefix + text)
	if err != nil {
		return key, refuse(http.StatusBadRequest, "%q names no object: want Kind/namespace/name", text)
	}
	return key, nil
}

// objectList is the page of all objects.
type objectList struct {
	Kind, Search string
	Kinds        []catalog.Kind
	Objects      []show.Object
	Refused      []string // what is stored and can't be used
	Total        int
	Next         string // the object that the next page begins after
}

func objectsPage(r *request) (*content, error) {
	v := &objectList{Kind: r.FormValue("kind"), Search: strings.TrimSpace(r.FormValue("q"))}
	command := "isthmus get all"
	for _, d := range catalog.Definitions() {
		v.Kinds = append(v.Kinds, d.Kind)
		if string(d.Kind) == v.Kind {
			command = "isthmus get " + d.Plural
		}
	}
	if v.Kind != "" && !slices.Contains(v.Kinds, catalog.Kind(v.Kind)) {
		return nil, refuse(http.StatusBadRequest, "no kind %s", v.Kind)
	}
	req := &v1alpha1.GetRequest{Key: wire.Key(catalog.Key{Kind: catalog.Kind(v.Kind)}), Search: v.Search, Most: mostRows + 1}
	if after := r.FormValue("after"); after != "" {
		key, err := keyNamed(after)
		if err != nil {
			return nil, err
		}
		req.After = wire.Key(key)
	}
	var err error
	if v.Objects, v.Total, err = r.inForce(req); err != nil {
		return nil, err
	}
	if len(v.Objects) > mostRows {
		v.Objects, v.Next = v.Objects[:mostRows], named(v.Objects[mostRows-1].Key())
	}
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	for _, refused := range now.GetRefused() {
		v.Refused = append(v.Refused, refused.GetError())
	}
	return &content{Page: v, Title: "Objects", Command: command, Live: true}, nil
}

// objectView is the page of one object.
type objectView struct {
	*object
	Exists   bool
	Versions []*v1alpha1.PastObject
}

func objectPage(r *request) (*content, error) {
	key, err := r.pathKey()
	if err != nil {
		return nil, err
	}
	v := &objectView{}
	if v.object, err = r.optional(key); err != nil {
		return nil, err
	}
	if v.Versions, err = r.history(key); err != nil {
		return nil, err
	}
	if v.Exists = v.object != nil; !v.Exists {
		if len(v.Versions) == 0 {
			return nil, refuse(http.StatusNotFound, "no object %s", key)
		}
		v.object = &object{Key: key}
	}
	v.object.mark(r.FormValue("mark"))
	command := "isthmus history " + kindOf(key) + " " + key.NamespacedName() + " --diff"
	return &content{Page: v, Title: key.String(), Command: command, Live: true}, nil
}

// kindOf is a key's kind as the command line calls it.
func kindOf(k catalog.Key) string {
	for _, d := range catalog.Definitions() {
		if d.Kind == k.Kind {
			return d.Singular
		}
	}
	return string(k.Kind)
}
