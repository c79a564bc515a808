package strict

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Document is a YAML file that was read into a struct. It knows where each value stands, so
// that mistakes which only the reader of the struct can see have a place too.
type Document struct {
	root   *Node
	report Report
	broken bool // not YAML: whatever else is missing may be in it
}

// Decode reads a YAML text of one document into a pointer to a struct. The mistakes are in
// [Document.Err].
//
// The fields of a struct are those with a yaml tag, or a json tag where there is none; those of an
// embedded struct tagged ",inline" count as its own. Where a list is tagged ",single", its only
// item may stand in its place. Where a struct has a field tagged ",short", a value alone is that
// field.
func Decode(file string, text []byte, into any) *Document {
	d := &Document{root: &Node{At: Position{1, 1}}, report: Report{File: file}}
	parsed := NewYAML(text)
	if parsed.Next() {
		if root, ok := parsed.Root(&d.report); ok && root.Kind != Null {
			d.root = &root
		}
		if parsed.Next() {
			d.root = &Node{At: Position{1, 1}}
			d.report.Errors = nil
			d.report.Add(Position{int32(parsed.Line()), 1}, "", "a second document begins here", "keep one document in this file")
			return d
		}
	}
	if parsed.Mistake != nil {
		parsed.Mistake.File = file
		d.root, d.broken = &Node{At: Position{1, 1}}, true
		d.report.Errors = Errors{parsed.Mistake}
	} else if d.root.Kind != Null {
		fill("", d.root, into, &d.report)
	}
	return d
}

// Has tells whether a path such as "listen.gateway" was written.
func (d *Document) Has(path string) bool {
	_, whole := d.root.follow(path)
	return whole
}

// Refuse adds a mistake at a path. If nothing was written there, its place is that of
// the nearest part of the path that was.
func (d *Document) Refuse(path, what, fix string) {
	if d.broken {
		return
	}
	at := d.root.Find(path)
	if at == d.root {
		d.report.Add(Position{1, 1}, path, what, fix)
		return
	}
	d.report.Add(at.At, path, what, fix)
}

// Merge adds the mistakes that a part found in its own settings, which stand at path.
func (d *Document) Merge(path string, err error) {
	for _, e := range Below(path, err) {
		d.Refuse(e.Path, e.What, e.Fix)
	}
}

// Wrong tells whether there is a mistake at a path or below it.
func (d *Document) Wrong(path string) bool {
	return slices.ContainsFunc(d.report.Errors, func(e *Error) bool {
		rest, below := strings.CutPrefix(e.Path, path)
		return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Err is nil if there is no mistake, and otherwise an [Errors] in the order of the file.
func (d *Document) Err() error {
	slices.SortStableFunc(d.report.Errors, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.report.Errors.Err()
}

// Paths lists every path that a struct has, in the order of its fields: for
// documentation, and for tests that hold documentation to the code. The fields of a list's
// items are below "list[]".
func Paths(of any) []string { return paths("", reflect.Indirect(reflect.ValueOf(of))) }

func paths(path string, v reflect.Value) []string {
	var all []string
	for _, f := range fieldsOf(v) {
		below := join(path, f.name)
		t := f.value.Type()
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			if f.single {
				all = append(all, below)
			}
			all = append(all, paths(below+"[]", reflect.New(t.Elem()).Elem())...)
			continue
		}
		if t.Kind() == reflect.Struct {
			all = append(all, paths(below, reflect.New(t).Elem())...)
			continue
		}
		all = append(all, below)
	}
	return all
}

// Each calls f with a pointer to each struct below another one, and with its path.
func Each(of any, f func(path string, part any)) {
	each("", reflect.Indirect(reflect.ValueOf(of)), f)
}

func each(path string, v reflect.Value, f func(path string, part any)) {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		if path != "" && v.CanAddr() {
			f(path, v.Addr().Interface())
		}
		for _, field := range fieldsOf(v) {
			each(join(path, field.name), field.value, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			each(fmt.Sprintf("%s[%d]", path, i), v.Index(i), f)
		}
	}
}

// Values are the values of a struct that are not zero, by their paths: those that are in force,
// whether they were written or are defaults. Texts are shown as show does; a type with a String of
// its own, as secrets have, by that.
func Values(of any, show func(string) string) map[string]any {
	all := map[string]any{}
	values("", reflect.Indirect(reflect.ValueOf(of)), show, all)
	return all
}

func values(path string, v reflect.Value, show func(string) string, all map[string]any) {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	shown, shows := v.Interface().(fmt.Stringer)
	switch {
	case v.IsZero() && v.Kind() != reflect.Struct:
	case shows:
		all[path] = show(shown.String())
	case v.Kind() == reflect.Struct:
		for _, f := range fieldsOf(v) {
			values(join(path, f.name), f.value, show, all)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			values(fmt.Sprintf("%s[%d]", path, i), v.Index(i), show, all)
		}
	case v.Kind() == reflect.String:
		all[path] = show(v.String())
	case v.Kind() == reflect.Bool || v.CanInt() || v.CanUint() || v.CanFloat():
		all[path] = v.Interface()
	default:
		all[path] = show(fmt.Sprint(v.Interface()))
	}
}

// Fill fills the struct that into points to from a node, as [Decode] does, and adds the mistakes
// to a report.
func Fill(root *Node, into any, r *Report) { fill("", root, into, r) }
