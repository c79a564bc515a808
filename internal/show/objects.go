package show

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
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
		object, err := decoded(wire.KeyOf(o.GetKey()), o.GetJson())
		if err != nil {
			return nil, err
		}
		all = append(all, Object{object, o.GetRevision(), o.GetSource(), o.GetRefused()})
	}
	return all, nil
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
	case Names:
		for i := range all {
			Say(w, "%s\n", all[i].Key().ResourceName())
		}
		return nil
	case Table:
		return objectTables(w, all)
	}
	if single && len(all) == 1 { // it has its version and kind itself
		return writeJSON(w, f, api.EncodeJSONAt(all[0].Object, all[0].Revision))
	}
	list := make([][]byte, len(all))
	for i, o := range all {
		list[i] = api.EncodeJSONAt(o.Object, o.Revision)
	}
	return writeList(w, f, catalog.Version, list)
}

// List writes objects as kubectl writes several, in JSON.
func List(w io.Writer, version string, all [][]byte) error {
	return writeList(w, JSON, version, all)
}

func writeList(w io.Writer, f Format, version string, all [][]byte) error {
	return writeJSON(w, f, fmt.Appendf(nil, `{"apiVersion":%q,"kind":"List","items":[%s]}`, version, bytes.Join(all, []byte(","))))
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

// ObjectWatch writes objects, and then their changes, one after the other: lines of tables, or an
// ObjectChange in each line.
type ObjectWatch struct {
	W      io.Writer
	Format Format

	last map[catalog.Key]Object
	kind catalog.Kind // whose heading was written last
}

// changes are the objects that are new, other than before or gone, each with its word. Those of the first
// update are unchanged.
func (w *ObjectWatch) changes(now []Object) (all []Object, whats []string) {
	first, next := w.last == nil, make(map[catalog.Key]Object, len(now))
	for _, o := range now {
		old, there := w.last[o.Key()]
		next[o.Key()] = o
		switch {
		case first:
			all, whats = append(all, o), append(whats, "unchanged")
		case !there:
			all, whats = append(all, o), append(whats, "created")
		case old.Revision != o.Revision || old.Refused != o.Refused || old.Stored != o.Stored:
			all, whats = append(all, o), append(whats, "changed")
		}
	}
	for key, o := range w.last {
		if _, there := next[key]; !there {
			all, whats = append(all, o), append(whats, "deleted")
		}
	}
	w.last = next
	return all, whats
}

// Update writes what differs from the objects before.
func (w *ObjectWatch) Update(now []Object) error {
	all, whats := w.changes(now)
	switch w.Format {
	case Table:
		return w.tables(all, whats)
	case Names:
		for _, o := range all {
			Say(w.W, "%s\n", o.Key().ResourceName())
		}
		return nil
	}
	for i, o := range all {
		text := fmt.Appendf(nil, `{"apiVersion":%q,"kind":"ObjectChange","change":%q,"object":%s}`, catalog.Version, whats[i], api.EncodeJSONAt(o.Object, o.Revision))
		if err := writeLine(w.W, w.Format, text); err != nil {
			return err
		}
	}
	return nil
}

// tables writes lines of tables. They are as wide as all objects of their kind need, so that most
// changes fit below what stands above them.
func (w *ObjectWatch) tables(all []Object, whats []string) error {
	for _, d := range catalog.Definitions() {
		var table [][]string
		for i, o := range all {
			if o.Key().Kind == d.Kind {
				table = append(table, append([]string{whats[i]}, objectRow(d, o)...))
			}
		}
		changed := len(table)
		if changed == 0 {
			continue
		}
		for _, o := range w.last {
			if o.Key().Kind == d.Kind {
				table = append(table, append([]string{"unchanged"}, objectRow(d, o)...))
			}
		}
		var text strings.Builder
		if err := rows(&text, append([]string{"CHANGE"}, headings(d)...), table); err != nil {
			return err
		}
		lines := strings.SplitAfter(text.String(), "\n")[:1+changed]
		if d.Kind == w.kind {
			lines = lines[1:]
		}
		w.kind = d.Kind
		if _, err := io.WriteString(w.W, strings.Join(lines, "")); err != nil {
			return err
		}
	}
	return nil
}
