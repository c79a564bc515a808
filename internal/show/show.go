// Package show prints answers: as tables for people, as JSON and YAML for programs.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

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

// Names is a format of objects alone: KIND/NAMESPACE/NAME in each line.
const Names Format = "name"

// Formats lists every format that all answers have, as people write it.
func Formats() []string { return []string{string(Table), string(JSON), string(YAML), pathFormat} }

// pathFormat stands before the path that a format picks from JSON.
const pathFormat = "jsonpath="

// Print writes an answer as JSON or YAML, by the convention of docs/reference/json.md. It begins
// with the version of the format and with the kind of the answer.
func Print(w io.Writer, f Format, kind string, m proto.Message) error {
	p := newPrinter(kind)
	p.fields(m.ProtoReflect(), true)
	return p.end(w, f)
}

// PrintList is Print for several answers alike.
func PrintList[M proto.Message](w io.Writer, f Format, kind string, all []M) error {
	p := newPrinter(kind)
	p.WriteString(`,"items":[`)
	for i, m := range all {
		if i > 0 {
			p.WriteByte(',')
		}
		p.object(m.ProtoReflect())
	}
	p.WriteByte(']')
	return p.end(w, f)
}

// PrintLine writes JSON in one line, also for YAML, or what a path picks.
func PrintLine(w io.Writer, f Format, kind string, m proto.Message) error {
	p := newPrinter(kind)
	p.fields(m.ProtoReflect(), true)
	return writeLine(w, f, p.close())
}

func writeLine(w io.Writer, f Format, text []byte) error {
	if path, ok := f.Path(); ok {
		return pick(w, path, text)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, line.String())
	return err
}

func newPrinter(kind string) *printer {
	p := &printer{}
	fmt.Fprintf(p, `{"apiVersion":%q,"kind":%q`, catalog.Version, kind)
	return p
}

func (p *printer) close() []byte {
	p.WriteByte('}')
	return p.Bytes()
}

// end writes the whole document.
func (p *printer) end(w io.Writer, f Format) error {
	if f == YAML {
		return Documents(w, p.close())
	}
	return writeJSON(w, f, p.close())
}

// writeJSON writes JSON in lines, as people can read it, or what a path picks.
func writeJSON(w io.Writer, f Format, text []byte) error {
	if path, ok := f.Path(); ok {
		return pick(w, path, text)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, indented.String())
	return err
}

// Documents writes texts of JSON as YAML documents, in the order of their fields.
func Documents(w io.Writer, texts ...[]byte) error {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	for _, text := range texts {
		var n yaml.Node
		if err := yaml.Unmarshal(text, &n); err != nil {
			return fmt.Errorf("the service sent what can't be read: %w", err)
		}
		asBlock(&n)
		if err := e.Encode(&n); err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// otherwise is a text that readers of older YAML take for no text.
var otherwise = regexp.MustCompile(`^(?i:[-+]?[0-9][0-9_:.]*|y|yes|n|no|on|off)$`)

// asBlock takes the style of JSON from a document.
func asBlock(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || !otherwise.MatchString(n.Value) {
		n.Style = 0
	}
	for _, child := range n.Content {
		asBlock(child)
	}
}

// Count is a number of things: "1 object", "2 objects".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
