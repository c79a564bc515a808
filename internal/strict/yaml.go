package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of a YAML document.
const (
	maxDepth      = 32      // of nesting; an object needs 6
	maxAliasNodes = 100_000 // that aliases may add to a file: an alias can repeat much with few words
)

// Bounds of a text, so that reading one takes a small multiple of its length. An entry of a list is
// a few values.
const (
	MaxValues    = 1_000_000 // in a document: keys, values, lists and mappings
	maxDocuments = 100_000
)

// YAML reads the documents of a text, one after the other: the whole of a large one would take many
// times its length.
type YAML struct {
	Mistake *Error // why there is no next document; nil at the end of the text. It has no File.

	text    []byte
	decoder *yaml.Decoder
	doc     yaml.Node
	aliases int // nodes added by aliases so far
}

// NewYAML looks at a text, and reads nothing yet.
func NewYAML(text []byte) *YAML {
	f := &YAML{text: text, decoder: yaml.NewDecoder(bytes.NewReader(text))}
	if f.Mistake = encodingError(text); f.Mistake == nil {
		f.Mistake = sizeError(text)
	}
	return f
}

// Next goes to the next document, if there is one.
func (f *YAML) Next() (more bool) {
	defer func() {
		// The parser has panicked on hostile text before (CVE-2022-28948).
		if p := recover(); p != nil {
			more, f.Mistake = false, &Error{Line: 1, Column: 1, What: "this text makes the YAML parser fail", Fix: "check it with a YAML linter"}
		}
	}()
	if f.Mistake != nil {
		return false
	}
	f.doc = yaml.Node{}
	err := f.decoder.Decode(&f.doc)
	if err != nil && !errors.Is(err, io.EOF) {
		f.Mistake = syntaxError(err, f.text)
	}
	return err == nil
}

// sizeError refuses a text with more documents, or values in one, than anybody writes. It counts what
// a value can't be without, as nothing is read yet.
func sizeError(text []byte) *Error {
	documents, line := 1, 1
	for len(text) > 0 {
		doc := text[:documentEnd(text)]
		if marks(doc) > MaxValues {
			return &Error{Line: line, Column: 1, What: fmt.Sprintf("this document has more than %d values", MaxValues), Fix: "write several objects, with --- between them"}
		}
		if documents++; documents > maxDocuments {
			return &Error{Line: line, Column: 1, What: fmt.Sprintf("more than %d documents", maxDocuments), Fix: "write several files"}
		}
		line += bytes.Count(doc, []byte("\n"))
		text = text[len(doc):]
	}
	return nil
}

// documentEnd is where the line begins that ends the first document of a text.
func documentEnd(text []byte) int {
	for end := 0; ; {
		next := bytes.Index(text[end:], []byte("\n---"))
		if next < 0 {
			return len(text)
		}
		end += next + 1
		if after := end + len("---"); after == len(text) || strings.IndexByte(" \t\r\n", text[after]) >= 0 {
			return end
		}
	}
}

// marks is at least how many values there are in a text of YAML or JSON.
func marks(text []byte) (n int) {
	for _, mark := range []string{"\n", ",", ":", "[", "{", "- ", "? "} {
		n += bytes.Count(text, []byte(mark))
	}
	return n
}

// encodingError says where a text stops to be UTF-8. YAML knows UTF-16 too, but whatever
// else reads the file most often doesn't.
func encodingError(text []byte) *Error {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return &Error{Line: 1, Column: 1, What: "not YAML: the text is UTF-16", Fix: "save it as UTF-8"}
	}
	valid := 0
	for valid < len(text) {
		r, size := utf8.DecodeRune(text[valid:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		valid += size
	}
	if valid == len(text) {
		return nil
	}
	before := text[:valid]
	return &Error{
		Line:   bytes.Count(before, []byte("\n")) + 1,
		Column: utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1,
		What:   fmt.Sprintf("not YAML: the byte 0x%02x is not UTF-8", text[valid]),
		Fix:    "save the file as UTF-8",
	}
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// syntaxError says what is wrong with a text that is not YAML, and what to do about it.
func syntaxError(err error, text []byte) *Error {
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	e := &Error{Line: 1, Column: 1, Fix: "mend it near this line"}
	if m := yamlLine.FindStringSubmatch(what); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		what = what[len(m[0]):]
	}
	e.What = "not YAML: " + Shorten(what)
	lines := bytes.Split(text, []byte("\n"))
	if e.Line > len(lines) {
		return e
	}
	switch line := string(lines[max(e.Line, 1)-1]); {
	case strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t"):
		e.What, e.Fix = "not YAML: the line is indented with a tab", "use spaces"
	case star.MatchString(line):
		e.What, e.Fix = "not YAML: a * without quotes refers to another part of the file", `write "*" in quotes`
	}
	return e
}

// star matches a value that is a * without quotes.
var star = regexp.MustCompile(`[:,\[{-]\s*\*\s*([,\]}#]|$)`)

// Line is the line of the document.
func (f *YAML) Line() int { return max(f.doc.Line, 1) }

// Root is the value of the document, null for an empty one. It is false after a mistake.
func (f *YAML) Root(r *Report) (Node, bool) {
	c := converter{report: r, left: maxAliasNodes - f.aliases}
	root, ok := c.convert(&f.doc, 0)
	f.aliases = maxAliasNodes - c.left
	return root, ok
}

// converter turns YAML nodes into nodes.
type converter struct {
	report *Report
	left   int          // how many more nodes aliases may add
	within []*yaml.Node // the anchors whose aliases are being followed
}

func (c *converter) convert(y *yaml.Node, depth int) (Node, bool) {
	n := Node{At: Position{int32(y.Line), int32(y.Column)}}
	if y.Kind == yaml.DocumentNode {
		if len(y.Content) == 0 {
			return n, true
		}
		return c.convert(y.Content[0], depth)
	}
	if depth > maxDepth {
		c.report.Add(n.At, "", fmt.Sprintf("more than %d levels deep", maxDepth), "an object needs 6")
		return n, false
	}
	if len(c.within) > 0 {
		if c.left--; c.left < 0 {
			c.report.Add(n.At, "", fmt.Sprintf("aliases repeat more than %d values", maxAliasNodes), "write fewer, or write them out")
			return n, false
		}
	}
	if y.Style&yaml.TaggedStyle != 0 {
		c.report.Add(n.At, "", "tag "+Shorten(y.Tag)+" is not taken", "leave it out; put a string that looks like a number in quotes")
		return n, false
	}
	return c.byKind(n, y, depth)
}

func (c *converter) byKind(n Node, y *yaml.Node, depth int) (Node, bool) {
	switch y.Kind {
	case yaml.ScalarNode:
		n.Kind, n.Text = scalarKind(y), y.Value
		return n, true
	case yaml.AliasNode:
		return c.alias(n, y, depth)
	case yaml.MappingNode:
		n.Kind = Map
	default:
		n.Kind = List
	}
	n.Children = make([]Node, 0, len(y.Content))
	for _, child := range y.Content {
		converted, ok := c.convert(child, depth+1)
		if !ok {
			return n, false
		}
		n.Children = append(n.Children, converted)
	}
	return n, true
}

// alias puts a copy of the anchored value in the alias's place.
func (c *converter) alias(n Node, y *yaml.Node, depth int) (Node, bool) {
	for _, anchor := range c.within {
		if anchor == y.Alias {
			c.report.Add(n.At, "", "alias *"+Shorten(y.Value)+" stands within the value that it repeats", "write the value out")
			return n, false
		}
	}
	c.within = append(c.within, y.Alias)
	copied, ok := c.convert(y.Alias, depth)
	c.within = c.within[:len(c.within)-1]
	copied.At = n.At
	return copied, ok
}

func scalarKind(y *yaml.Node) Kind {
	switch y.ShortTag() {
	case "!!str", "!!merge":
		return String
	case "!!null":
		return Null
	case "!!int":
		return Int
	case "!!float":
		return Float
	case "!!bool":
		return Bool
	}
	return Other
}
