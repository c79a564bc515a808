package show

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Object is one object as it stands in the store.
type Object struct {
	catalog.Object
	Revision string
	Stored   string // file:line, for stores that have it, or "from" what it is derived
	Refused  string // why what the store has now can't be used; this is what is in force
}

// ObjectsOf reads the objects of an answer.
func ObjectsOf(m *v1alpha1.GetResponse) ([]Object, error) {
	var all []Object
	for _, o := range m.GetObjects() {
		object, err := decoded(keyOf(o.GetKey()), o.GetJson())
		if err != nil {
			return nil, err
		}
		all = append(all, Object{object, o.GetRevision(), o.GetSource(), o.GetRefused()})
	}
	return all, nil
}

// keyOf is the key that a message names.
func keyOf(k *v1alpha1.ObjectKey) catalog.Key {
	return catalog.Key{Kind: catalog.Kind(k.GetKind()), Namespace: k.GetNamespace(), Name: k.GetName()}
}

// decoded is an object of an answer.
func decoded(key catalog.Key, text []byte) (catalog.Object, error) {
	object, err := api.DecodeJSON(api.KeyPath(key), text)
	if err != nil {
		return nil, fmt.Errorf("read %s from the answer: %w; is the service of another version than this isthmus?", key, err)
	}
	return object, nil
}

// Notice says that an object is not what the store has now.
func (o *Object) Notice() string {
	return fmt.Sprintf("%s: what is stored is refused: %s; this is what is in force", o.Key(), o.Refused)
}

// Objects writes objects. As YAML and JSON they have the revision that they stand at, so that they
// can be applied again unless somebody else has changed them; as JSON one that was asked for by
// name stands alone, others in a list.
func Objects(w io.Writer, f Format, all []Object, single bool) error {
	switch f {
	case YAML:
		return objectsYAML(w, all)
	case JSON:
		if single && len(all) == 1 { // it has its version and kind itself
			return writeJSON(w, api.EncodeJSONAt(all[0].Object, all[0].Revision))
		}
		list := make([][]byte, len(all))
		for i, o := range all {
			list[i] = api.EncodeJSONAt(o.Object, o.Revision)
		}
		return List(w, catalog.Version, list)
	default:
		return objectTables(w, all)
	}
}

// List writes objects as kubectl writes several, in JSON.
func List(w io.Writer, version string, all [][]byte) error {
	return writeJSON(w, fmt.Appendf(nil, `{"apiVersion":%q,"kind":"List","items":[%s]}`, version, bytes.Join(all, []byte(","))))
}

func objectsYAML(w io.Writer, all []Object) error {
	for i, o := range all {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if o.Refused != "" {
			fmt.Fprintf(w, "# %s\n", strings.ReplaceAll(o.Notice(), "\n", "\n# "))
		}
		if strings.HasPrefix(o.Stored, "from ") {
			fmt.Fprintf(w, "# derived %s; an object of this name that is applied stands instead\n", o.Stored)
		}
		if _, err := w.Write(api.EncodeYAMLAt(o.Object, o.Revision)); err != nil {
			return err
		}
	}
	return nil
}

// objectTables writes a table for each kind.
func objectTables(w io.Writer, all []Object) error {
	first := true
	for _, d := range catalog.Definitions() {
		var table [][]string
		for _, o := range all {
			if o.Key().Kind == d.Kind {
				table = append(table, objectRow(d, o))
			}
		}
		if table == nil {
			continue
		}
		if !first {
			fmt.Fprintln(w)
		}
		first = false
		if err := rows(w, headings(d), table); err != nil {
			return err
		}
	}
	return nil
}

func headings(d catalog.Definition) []string {
	all := []string{strings.ToUpper(string(d.Kind))}
	for _, c := range d.Columns {
		if c.Value != nil {
			all = append(all, c.Heading)
		}
	}
	return append(all, "REVISION", "SOURCE")
}

func objectRow(d catalog.Definition, o Object) []string {
	row := []string{o.Key().NamespacedName()}
	for _, c := range d.Columns {
		if c.Value != nil {
			row = append(row, c.Value(o.Object))
		}
	}
	if o.Refused != "" {
		return append(row, o.Revision, strings.TrimSpace(o.Stored+" refused"))
	}
	return append(row, o.Revision, o.Stored)
}
