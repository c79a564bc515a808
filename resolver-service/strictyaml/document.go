// Package strictyaml reads one YAML document into a Go struct and lets nothing pass
// that the struct does not know: an unknown or doubled field, a value of another
// type or an empty one is a mistake with its file, line and column, and with what to
// do about it.
//
// The fields of a struct are those with a yaml tag; those of an embedded struct
// tagged ",inline" count as its own. Fields may be strings, booleans, whole numbers,
// numbers, durations, structs, pointers to structs, and lists of strings or structs. Where
// a list is tagged ",single", its only item may stand in its place; where a struct has a
// field tagged ",short", a value alone is that field.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/api"
)

// Document is a file that was read. It knows where each value stands, so that
// mistakes which only the reader of the struct can see have a place too.
type Document struct {
	file   string
	places map[string]place
	errors api.Errors
}

type place struct{ line, column int }

// Decode reads a file's text into a pointer to a struct. What is wrong is in the
// document's [Document.Err].
func Decode(file string, text []byte, into any) *Document {
	d := &Document{file: file, places: map[string]place{}}
	root, err := parse(text)
	switch {
	case err != nil:
		line, what := syntax(err)
		d.add(place{line, 1}, "", "not YAML: "+what, "mend it near this line")
	case root != nil:
		d.value("", root, reflect.ValueOf(into).Elem())
	}
	return d
}

// Has tells whether a path such as "listen.gateway" was written.
func (d *Document) Has(path string) bool {
	_, ok := d.places[path]
	return ok
}

// Refuse adds a mistake at a path. If nothing was written there, its place is that of
// the nearest part of the path that was.
func (d *Document) Refuse(path, what, fix string) {
	d.add(d.find(path), path, what, fix)
}

// Wrong tells whether there is a mistake at a path or below it.
func (d *Document) Wrong(path string) bool {
	return slices.ContainsFunc(d.errors, func(e *api.Error) bool {
		rest, below := strings.CutPrefix(e.Path, path)
		return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Err is nil if there is no mistake, and otherwise an [api.Errors].
func (d *Document) Err() error { return d.errors.Err() }

// maxErrors is after how many mistakes reading stops.
const maxErrors = 100

func (d *Document) full() bool { return len(d.errors) >= maxErrors }

func (d *Document) add(at place, path, what, fix string) {
	if d.full() {
		return
	}
	if len(d.errors) == maxErrors-1 {
		what += fmt.Sprintf(" (reading stops here, after %d mistakes)", maxErrors)
	}
	d.errors = append(d.errors, &api.Error{
		File: d.file, Line: at.line, Column: at.column, Path: path, What: what, Fix: fix,
	})
}

func (d *Document) find(path string) place {
	for path != "" {
		if at, ok := d.places[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return place{1, 1}
}

// parse returns the only document of the text, or nil if there is none.
func parse(text []byte) (root *yaml.Node, err error) {
	defer func() {
		// The parser has panicked on hostile text before (CVE-2022-28948).
		if recover() != nil {
			err = errors.New("line 1: this text makes the YAML parser fail")
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("line %d: a second document begins here; one is wanted", max(more.Line, 1)), err)
	}
	if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

var linePrefix = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

func syntax(err error) (line int, what string) {
	what = strings.TrimPrefix(err.Error(), "yaml: ")
	line = 1
	if m := linePrefix.FindStringSubmatch(what); m != nil {
		line, _ = strconv.Atoi(m[1])
		what = what[len(m[0]):]
	}
	return line, what
}
