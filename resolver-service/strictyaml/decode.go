package strictyaml

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/settings"
)

var durationType = reflect.TypeFor[time.Duration]()

// value fills v from a node, which stands at path.
func (d *Document) value(path string, n *yaml.Node, v reflect.Value) {
	at := place{n.Line, n.Column}
	d.places[path] = at
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.add(at, path, "anchors and aliases are not taken here", "write the value out")
	case n.ShortTag() == "!!null":
		d.add(at, path, "has no value", "give it one, or leave the field out")
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(path, n, v.Elem())
	case v.Type() == settings.SecretType && n.Kind != yaml.MappingNode:
		what, fix, _ := strings.Cut(settings.NoSecretHere, "; ")
		d.add(at, path, what, fix) // and not what stands there
	case v.Kind() == reflect.Struct && n.Kind == yaml.ScalarNode && short(v).IsValid():
		d.value(path, n, short(v))
	case v.Kind() == reflect.Struct:
		d.mapping(path, n, v)
	case v.Kind() == reflect.Slice:
		d.list(path, n, v)
	case n.Kind != yaml.ScalarNode:
		d.add(at, path, "is "+kindOf(n)+" where one value is wanted", "write "+wanted(v.Type()))
	default:
		d.scalar(path, n, v)
	}
}

func (d *Document) mapping(path string, n *yaml.Node, v reflect.Value) {
	fields := fieldsOf(v)
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if n.Kind != yaml.MappingNode {
		d.add(place{n.Line, n.Column}, path, "is "+kindOf(n)+" where a mapping is wanted", "write its fields: "+strings.Join(names, ", "))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content) && !d.full(); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at, below := place{key.Line, key.Column}, join(path, key.Value)
		index := slices.Index(names, key.Value)
		switch line, doubled := first[key.Value]; {
		case index < 0:
			d.add(at, below, "unknown field", d.suggest(key.Value, names))
		case doubled:
			d.add(at, below, fmt.Sprintf("is there twice, first in line %d", line), "keep one of them")
		case fields[index].single && value.Kind != yaml.SequenceNode && value.ShortTag() != "!!null":
			first[key.Value] = key.Line
			d.single(below, value, fields[index].value)
		default:
			first[key.Value] = key.Line
			d.value(below, value, fields[index].value)
		}
	}
}

func (d *Document) suggest(name string, names []string) string {
	if near := api.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "the fields here are " + strings.Join(names, ", ")
}

func (d *Document) list(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.add(place{n.Line, n.Column}, path, "is "+kindOf(n)+" where a list is wanted", "begin each item with \"- \"")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		if d.full() {
			return
		}
		d.value(fmt.Sprintf("%s[%d]", path, i), item, v.Index(i))
	}
}

// single fills a list with the one item that stands where the list may, too.
func (d *Document) single(path string, n *yaml.Node, v reflect.Value) {
	v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	d.value(path, n, v.Index(0))
}

func (d *Document) scalar(path string, n *yaml.Node, v reflect.Value) {
	ok := false
	switch tag := n.ShortTag(); {
	case v.Type() == durationType:
		var length time.Duration
		if length, ok = duration(n.Value); ok {
			v.SetInt(int64(length))
		}
	case v.Kind() == reflect.String:
		// A number or "true" is no string unless quoted, but no one means another thing by it here.
		if ok = n.Value != ""; ok {
			v.SetString(n.Value)
		}
	case v.Kind() == reflect.Bool && tag == "!!bool":
		ok = n.Decode(v.Addr().Interface()) == nil
	case v.CanInt() && tag == "!!int":
		number, err := strconv.ParseInt(n.Value, 10, v.Type().Bits())
		ok = err == nil
		v.SetInt(number)
	case v.CanFloat() && (tag == "!!float" || tag == "!!int"):
		ok = n.Decode(v.Addr().Interface()) == nil
	}
	if !ok {
		d.add(place{n.Line, n.Column}, path, fmt.Sprintf("%q does not fit", n.Value), "write "+wanted(v.Type()))
	}
}

// duration reads a length of time, which is never negative.
func duration(s string) (time.Duration, bool) {
	length, err := time.ParseDuration(s)
	return length, err == nil && length >= 0
}

func wanted(t reflect.Type) string {
	switch {
	case t == durationType:
		return `a length of time such as "10s" or "1m30s"`
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text that is not empty"
	case t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32:
		return "a number such as 0.5"
	default:
		return "a whole number such as 100"
	}
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		if settings.IsAddress(n.Value) {
			return "a text"
		}
		return fmt.Sprintf("%q", n.Value)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

type field struct {
	name   string
	value  reflect.Value
	single bool // a list whose only item may stand in its place
}

// short is the field of a struct that a value alone stands for; the zero Value if there is
// none.
func short(v reflect.Value) reflect.Value {
	for i := range v.NumField() {
		if _, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ","); options == "short" {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// fieldsOf are the fields of a struct that can be written.
func fieldsOf(v reflect.Value) []field {
	var all []field
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			all = append(all, fieldsOf(v.Field(i))...)
		case name != "" && name != "-":
			all = append(all, field{name, v.Field(i), options == "single"})
		}
	}
	return all
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
