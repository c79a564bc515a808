// Package settings is what the configurations of stores and of the Dapr component have in
// common: strict decoding of untyped values, secrets that stay where they are, and TLS.
package settings

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
)

var durationType = reflect.TypeFor[time.Duration]()

// decoder fills structs from the untyped values that daprd hands over, which come
// from YAML or JSON, and collects every mistake with the path of its key.
type decoder struct {
	errs []error
}

// Decode fills the struct that into points to, by its json tags, and returns every
// mistake with the path of its key below path.
func Decode(path string, from, into any) []error {
	d := &decoder{}
	d.value(path, from, reflect.ValueOf(into).Elem())
	return d.errs
}

// maxErrors is after how many mistakes reading stops.
const maxErrors = 100

func (d *decoder) full() bool { return len(d.errs) >= maxErrors }

func (d *decoder) refuse(path, format string, args ...any) {
	if d.full() {
		return
	}
	if len(d.errs) == maxErrors-1 {
		format += fmt.Sprintf(" (reading stops here, after %d mistakes)", maxErrors)
	}
	if path != "" {
		format = path + ": " + format
	}
	d.errs = append(d.errs, fmt.Errorf(format, args...))
}

func (d *decoder) value(path string, from any, into reflect.Value) {
	switch {
	case from == nil:
		d.refuse(path, "has no value; give it one, or leave the key out")
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, from, into.Elem())
	case into.Type() == SecretType && reflect.ValueOf(from).Kind() != reflect.Map:
		d.refuse(path, "%s", NoSecretHere) // and not what stands there
	case into.Kind() == reflect.Struct:
		d.structure(path, from, into)
	case into.Kind() == reflect.Map:
		if m, ok := d.keys(path, from); ok {
			into.Set(reflect.ValueOf(d.plainMap(path, m)))
		}
	case into.Kind() == reflect.Interface:
		if plain := d.plain(path, from); plain != nil {
			into.Set(reflect.ValueOf(plain))
		}
	case into.Type() == durationType:
		d.duration(path, from, into)
	case into.Kind() == reflect.Slice:
		d.list(path, from, into)
	default:
		d.scalar(path, from, into)
	}
}

func (d *decoder) structure(path string, from any, into reflect.Value) {
	values, ok := d.keys(path, from)
	if !ok {
		return
	}
	fields := map[string]reflect.Value{}
	for i := range into.NumField() {
		if name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = into.Field(i)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if d.full() {
			return
		}
		if field, known := fields[key]; known {
			d.value(join(path, key), values[key], field)
			continue
		}
		names := slices.Sorted(maps.Keys(fields))
		if near := api.Nearest(key, names); near != "" {
			d.refuse(join(path, key), "unknown key; did you mean %q?", near)
		} else {
			d.refuse(join(path, key), "unknown key; the keys here are %s", strings.Join(names, ", "))
		}
	}
}

func (d *decoder) list(path string, from any, into reflect.Value) {
	v := reflect.ValueOf(from)
	if v.Kind() != reflect.Slice {
		d.refuse(path, "is %s; want a list", kindOf(from))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), v.Len(), v.Len()))
	for i := range v.Len() {
		if d.full() {
			return
		}
		d.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i).Interface(), into.Index(i))
	}
}

// keys is a mapping with its keys as text.
func (d *decoder) keys(path string, from any) (map[string]any, bool) {
	v := reflect.ValueOf(from)
	if v.Kind() != reflect.Map {
		d.refuse(path, "is %s; want a mapping", kindOf(from))
		return nil, false
	}
	m := make(map[string]any, v.Len())
	for it := v.MapRange(); it.Next(); {
		key := it.Key()
		for key.Kind() == reflect.Interface && !key.IsNil() {
			key = key.Elem()
		}
		if key.Kind() != reflect.String {
			d.refuse(path, "has the key %v; keys are text", it.Key())
			return nil, false
		}
		m[key.String()] = it.Value().Interface()
	}
	return m, true
}

// plain is a value with all mappings in it as map[string]any, as other decoders want
// them.
func (d *decoder) plain(path string, from any) any {
	switch v := reflect.ValueOf(from); v.Kind() {
	case reflect.Map:
		if m, ok := d.keys(path, from); ok {
			return d.plainMap(path, m)
		}
		return nil
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = d.plain(fmt.Sprintf("%s[%d]", path, i), v.Index(i).Interface())
		}
		return list
	default:
		return from
	}
}

func (d *decoder) plainMap(path string, m map[string]any) map[string]any {
	for key, value := range m {
		m[key] = d.plain(join(path, key), value)
	}
	return m
}

func (d *decoder) duration(path string, from any, into reflect.Value) {
	text, ok := from.(string)
	if !ok {
		d.refuse(path, "is %s; want a length of time with its unit, such as \"2s\"", kindOf(from))
		return
	}
	length, err := time.ParseDuration(text)
	if err != nil || length <= 0 {
		d.refuse(path, "%q is no length of time; want one such as \"2s\" or \"500ms\"", text)
		return
	}
	into.SetInt(int64(length))
}

func (d *decoder) scalar(path string, from any, into reflect.Value) {
	v := reflect.ValueOf(from)
	switch {
	case into.Kind() == reflect.String && v.Kind() == reflect.String && v.String() != "":
		into.SetString(v.String())
	case into.Kind() == reflect.String && v.Kind() == reflect.String:
		d.refuse(path, "is empty; give it a value, or leave the key out")
	case into.Kind() == reflect.Bool && v.Kind() == reflect.Bool:
		into.SetBool(v.Bool())
	case into.Kind() == reflect.Bool:
		d.refuse(path, "is %s; want true or false", kindOf(from))
	case into.CanInt():
		d.whole(path, from, into)
	default:
		d.refuse(path, "is %s; want a text", kindOf(from))
	}
}

// whole fills a whole number. Numbers that came by JSON are floating-point.
func (d *decoder) whole(path string, from any, into reflect.Value) {
	v := reflect.ValueOf(from)
	n, ok := int64(0), true
	switch {
	case v.CanInt():
		n = v.Int()
	case v.CanUint() && v.Uint() <= math.MaxInt64:
		n = int64(v.Uint())
	case v.CanFloat() && v.Float() == math.Trunc(v.Float()) && math.Abs(v.Float()) < 1<<53:
		n = int64(v.Float())
	default:
		ok = false
	}
	if !ok || into.OverflowInt(n) {
		d.refuse(path, "is %s; want a whole number such as 100", kindOf(from))
		return
	}
	into.SetInt(n)
}

// IsAddress tells whether a text looks like an address that may hold a password: then it is
// not shown where something else was expected.
func IsAddress(text string) bool {
	return strings.Contains(text, "@") || strings.Contains(text, "://")
}

func kindOf(v any) string {
	switch k := reflect.ValueOf(v).Kind(); k {
	case reflect.Map:
		return "a mapping"
	case reflect.Slice:
		return "a list"
	case reflect.String:
		if IsAddress(fmt.Sprint(v)) {
			return "a text"
		}
		return fmt.Sprintf("the text %q", v)
	case reflect.Bool:
		return fmt.Sprintf("%v", v)
	default:
		return fmt.Sprintf("the number %v", v)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
