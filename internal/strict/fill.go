package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

var durationType = reflect.TypeFor[time.Duration]()

// Hidden is a type whose value must not be shown when something else stands in its place,
// since that may be the secret itself. Instead says what to write.
type Hidden interface{ Instead() (what, fix string) }

var hiddenType = reflect.TypeFor[Hidden]()

// filler fills structs from nodes. It goes on after a mistake, so that all of them are
// reported, until the report is full.
type filler struct{ *Report }

// fill fills what into points to from a node that stands at path.
func fill(path string, n *Node, into any, r *Report) {
	filler{r}.value(path, n, reflect.ValueOf(into).Elem())
}

func (f filler) value(path string, n *Node, v reflect.Value) {
	switch {
	case n.Kind == Null:
		f.Add(n.At, path, "has no value", "give it one, or leave the field out")
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		f.value(path, n, v.Elem())
	case v.Type().Implements(hiddenType) && n.Kind != Map:
		what, fix := v.Interface().(Hidden).Instead()
		f.Add(n.At, path, what, fix)
	case v.Kind() == reflect.Struct && n.Kind != Map && n.Kind != List && short(v).IsValid():
		f.value(path, n, short(v))
	case v.Kind() == reflect.Struct:
		f.mapping(path, n, v)
	case v.Kind() == reflect.Slice:
		f.list(path, n, v)
	case v.Kind() == reflect.Map && n.Kind != Map:
		f.Add(n.At, path, "is "+n.shown()+" where a mapping is wanted", "write {key: value}")
	case v.Kind() == reflect.Map || v.Kind() == reflect.Interface:
		if plain := f.plain(path, n); plain != nil {
			v.Set(reflect.ValueOf(plain))
		}
	case n.Kind == Map || n.Kind == List:
		f.Add(n.At, path, "is "+n.shown()+" where one value is wanted", "write "+wanted(v.Type()))
	default:
		f.scalar(path, n, v)
	}
}

func (f filler) mapping(path string, n *Node, v reflect.Value) {
	fields := fieldsOf(v)
	names := make([]string, len(fields))
	for i, known := range fields {
		names[i] = known.name
	}
	if n.Kind != Map {
		f.Add(n.At, path, "is "+n.shown()+" where a mapping is wanted", "write its fields: "+strings.Join(names, ", "))
		return
	}
	first := map[string]int32{}
	for i := 0; i+1 < len(n.Children) && !f.Full(); i += 2 {
		key, value := &n.Children[i], &n.Children[i+1]
		below := join(path, Shorten(key.Text))
		index := slices.Index(names, key.Text)
		switch line, doubled := first[key.Text]; {
		case index < 0:
			f.Unknown(key.At, below, key.Text, names)
			continue
		case doubled:
			f.Add(key.At, below, fmt.Sprintf("is there twice, first in line %d", line), "keep one of them")
			continue
		}
		first[key.Text] = key.At.Line
		field := fields[index].value
		if fields[index].single && value.Kind != List && value.Kind != Null {
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
			field = field.Index(0)
		}
		f.value(below, value, field)
	}
}

// Unknown adds that a mapping has no such field, and which it has.
func (r *Report) Unknown(at Position, path, name string, names []string) {
	fix := Hint(name, names, "the fields here are "+strings.Join(names, ", "))
	if name == "<<" {
		r.Add(at, path, "merge keys (<<) are not taken", "write the fields out")
		return
	}
	r.Add(at, path, "unknown field", fix)
}

func (f filler) list(path string, n *Node, v reflect.Value) {
	if n.Kind != List {
		f.Add(n.At, path, "is "+n.shown()+" where a list is wanted", "begin each item with \"- \"")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Children), len(n.Children)))
	for i := range n.Children {
		if f.Full() {
			return
		}
		f.value(fmt.Sprintf("%s[%d]", path, i), &n.Children[i], v.Index(i))
	}
}

// Octal tells whether a number begins with a 0 that some YAML parsers take for octal, and
// others do not.
func Octal(number string) bool {
	digits := strings.TrimLeft(number, "+-")
	return len(digits) > 1 && digits[0] == '0'
}

func (f filler) scalar(path string, n *Node, v reflect.Value) {
	ok := false
	switch {
	case n.Kind == String && n.Text == "":
		f.Add(n.At, path, "is empty", "write "+wanted(v.Type())+", or leave the field out")
		return
	case v.Type() == durationType:
		length, err := time.ParseDuration(n.Text)
		ok = err == nil && length > 0
		v.SetInt(int64(length))
	case v.Kind() == reflect.String:
		// A number or "true" is no string unless quoted, but no one means another thing by it.
		// Of an untyped one the text is lost: 1.10 came as 1.1.
		ok = n.Kind == String || n.value == nil
		v.SetString(n.Text)
	case v.Kind() == reflect.Bool && n.Kind == Bool:
		b, err := strconv.ParseBool(n.Text)
		ok = err == nil
		v.SetBool(b)
	case v.CanInt() && n.Kind == Int:
		number, err := strconv.ParseInt(n.Text, 10, v.Type().Bits())
		ok = err == nil && !Octal(n.Text)
		v.SetInt(number)
	case v.CanFloat() && (n.Kind == Float || n.Kind == Int):
		number, err := strconv.ParseFloat(n.Text, v.Type().Bits())
		ok = err == nil
		v.SetFloat(number)
	}
	switch {
	case !ok && v.Kind() == reflect.String:
		f.Add(n.At, path, n.shown()+" is "+n.Kind.String()+" where a text is wanted", "put it in quotes")
	case !ok:
		f.Add(n.At, path, n.shown()+" does not fit", "write "+wanted(v.Type()))
	}
}

func wanted(t reflect.Type) string {
	switch {
	case t == durationType:
		return `a length of time such as "10s" or "1m30s"`
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32:
		return "a number such as 0.5"
	default:
		return "a whole number such as 100"
	}
}

type field struct {
	name   string
	value  reflect.Value
	single bool // a list whose only item may stand in its place
}

// tag is the name and the option of a struct's field.
func tag(f reflect.StructField) (name, option string) {
	text, ok := f.Tag.Lookup("yaml")
	if !ok {
		text = f.Tag.Get("json")
	}
	name, option, _ = strings.Cut(text, ",")
	return name, option
}

// short is the field of a struct that a value alone stands for; the zero Value if there is
// none.
func short(v reflect.Value) reflect.Value {
	for i := range v.NumField() {
		if _, option := tag(v.Type().Field(i)); option == "short" {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// fieldsOf are the fields of a struct that can be written.
func fieldsOf(v reflect.Value) []field {
	var all []field
	for i := range v.NumField() {
		name, option := tag(v.Type().Field(i))
		switch {
		case option == "inline":
			all = append(all, fieldsOf(v.Field(i))...)
		case name != "" && name != "-":
			all = append(all, field{name, v.Field(i), option == "single"})
		}
	}
	return all
}
