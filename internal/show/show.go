// Package show prints answers: as tables for people, as JSON and YAML for programs.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Format is how an answer is printed.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists every format.
func Formats() []string { return []string{string(Table), string(JSON), string(YAML)} }

// List is what is printed for programs of several things alike.
type List[T any] struct {
	Items []T `json:"items" yaml:"items"`
}

// ListOf is a list, which is never null.
func ListOf[T any](all []T) List[T] {
	return List[T]{append([]T{}, all...)}
}

// Program is the version of a program.
type Program struct {
	Version string `json:"version" yaml:"version"`
	Go      string `json:"go" yaml:"go"`
	OS      string `json:"os" yaml:"os"`
	Arch    string `json:"arch" yaml:"arch"`
}

// StoreIndex is what the repair of an index has found.
type StoreIndex struct {
	Store   string `json:"store" yaml:"store"`
	Objects int    `json:"objects" yaml:"objects"`
}

// Print writes a struct or a map as JSON or YAML. It begins with the version of the format and with
// the kind of the answer.
func Print(w io.Writer, f Format, kind string, value any) error {
	if f == YAML {
		fmt.Fprintf(w, "apiVersion: %s\nkind: %s\n", catalog.Version, kind)
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		if err := e.Encode(value); err != nil {
			return err
		}
		return e.Close()
	}
	text, err := document(kind, value)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, indented.String())
	return err
}

// PrintLine writes JSON in one line.
func PrintLine(w io.Writer, kind string, value any) error {
	text, err := document(kind, value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(text))
	return err
}

// document is a JSON object that begins with its version and kind.
func document(kind string, value any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	rest := bytes.TrimPrefix(bytes.TrimSpace(text.Bytes()), []byte("{"))
	return append(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, catalog.Version, kind), rest...), nil
}

// Count is a number of things: "1 object", "2 objects".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
