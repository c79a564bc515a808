package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bounds of a YAML document.
const (
	maxDepth      = 32      // of nesting; an object needs 6
	maxAliasNodes = 100_000 // that aliases may add to a file: an alias can repeat much with few words
)

// Manifest is an object as a user wrote it, with the revision of the object that it was
// made from: its metadata.revision, empty where there is none.
type Manifest struct {
	catalog.Object
	Revision string
}

// DecodeYAML reads the objects of a YAML file, of which each document is one. file
// names it in errors and in the objects' Source. It leaves out metadata.revision, which
// says nothing in a file that is itself the store.
//
// Good objects are returned beside the mistakes of bad ones. If the file is not YAML
// at all, or is cut off, no object is returned, and the error has no key.
func DecodeYAML(file string, data []byte) ([]catalog.Object, Errors) {
	manifests, errs := DecodeManifests(file, data)
	if manifests == nil {
		return nil, errs
	}
	objects := make([]catalog.Object, len(manifests))
	for i, m := range manifests {
		objects[i] = m.Object
	}
	return objects, errs
}

// DecodeManifests is [DecodeYAML] of a file that is to be applied: with the revisions.
func DecodeManifests(file string, data []byte) ([]Manifest, Errors) {
	docs, err := parseYAML(file, data)
	if err != nil {
		return nil, Errors{err}
	}
	d := yamlFile{name: file, first: map[catalog.Key]int{}}
	for i := range docs {
		if d.mistaken == maxErrors {
			d.errors = append(d.errors, &Error{
				File: file, Line: docs[i].Line, Column: 1,
				What: fmt.Sprintf("reading this file stops here, after %d objects with mistakes", maxErrors),
				Fix:  "mend those above; what stands below is not read until then",
			})
			break
		}
		d.document(&docs[i])
	}
	return d.result(), d.errors
}

// yamlFile collects what the documents of a file hold.
type yamlFile struct {
	name    string
	objects []Manifest
	first   map[catalog.Key]int // the line of each key's first object
	doubled map[catalog.Key]bool
	errors  Errors
	// mistaken counts the documents with mistakes.
	mistaken int
	aliases  int // nodes added by aliases so far
}

func (f *yamlFile) document(doc *yaml.Node) {
	r := &report{file: f.name}
	c := converter{report: r, left: maxAliasNodes - f.aliases}
	root, ok := c.convert(doc, 0)
	f.aliases = maxAliasNodes - c.left
	if ok && root.kind == nullNode {
		return // nothing between two "---", or comments only
	}
	var obj catalog.Object
	if ok {
		obj = decodeObject(&root, r, true)
	}
	if len(r.errors) > 0 {
		f.mistaken++
	}
	f.errors = append(f.errors, r.close()...)
	if r.key == (catalog.Key{}) {
		return
	}
	if line, there := f.first[r.key]; there {
		f.double(r.key, root.at, line)
		return
	}
	f.first[r.key] = root.at.line
	if obj != nil {
		f.objects = append(f.objects, Manifest{obj, revisionOf(&root)})
	}
}

// double refuses an object that is there twice: which of the two is meant, nobody
// can know.
func (f *yamlFile) double(key catalog.Key, at position, first int) {
	if f.doubled == nil {
		f.doubled = map[catalog.Key]bool{}
	}
	f.doubled[key] = true
	f.errors = append(f.errors, &Error{
		File: f.name, Line: at.line, Column: at.column, Key: key,
		What: fmt.Sprintf("%s is there twice, first in line %d; neither is taken", key, first),
		Fix:  "keep one of them",
	})
}

// revisionOf is the metadata.revision of an object that was decoded without a mistake.
func revisionOf(root *node) string {
	if revision := root.field("metadata").field("revision"); revision != nil {
		return revision.text
	}
	return ""
}

func (f *yamlFile) result() []Manifest {
	if f.doubled == nil {
		return f.objects
	}
	var single []Manifest
	for _, obj := range f.objects {
		if !f.doubled[obj.Key()] {
			single = append(single, obj)
		}
	}
	return single
}

// parseYAML reads all documents of a file.
func parseYAML(file string, data []byte) (docs []yaml.Node, mistake *Error) {
	defer func() {
		// The parser has panicked on hostile text before (CVE-2022-28948).
		if p := recover(); p != nil {
			docs, mistake = nil, &Error{File: file, Line: 1, Column: 1, What: "this text makes the YAML parser fail", Fix: "check it with a YAML linter"}
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, syntaxError(file, err)
		}
		docs = append(docs, doc)
	}
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

func syntaxError(file string, err error) *Error {
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(what); m != nil {
		line, _ = strconv.Atoi(m[1])
		what = what[len(m[0]):]
	}
	return &Error{File: file, Line: line, Column: 1, What: "not YAML: " + shorten(what),
		Fix: "mend it near this line; no object of this file is taken until then"}
}

// converter turns YAML nodes into nodes.
type converter struct {
	report *report
	left   int          // how many more nodes aliases may add
	within []*yaml.Node // the anchors whose aliases are being followed
}

func (c *converter) convert(y *yaml.Node, depth int) (node, bool) {
	n := node{at: position{y.Line, y.Column}}
	if y.Kind == yaml.DocumentNode {
		if len(y.Content) == 0 {
			return n, true
		}
		return c.convert(y.Content[0], depth)
	}
	if depth > maxDepth {
		c.report.add(n.at, "", fmt.Sprintf("more than %d levels deep", maxDepth), "an object needs 6")
		return n, false
	}
	if len(c.within) > 0 {
		if c.left--; c.left < 0 {
			c.report.add(n.at, "", fmt.Sprintf("aliases repeat more than %d values", maxAliasNodes), "write fewer, or write them out")
			return n, false
		}
	}
	if y.Style&yaml.TaggedStyle != 0 {
		c.report.add(n.at, "", "tag "+shorten(y.Tag)+" is not taken", "leave it out; put a string that looks like a number in quotes")
		return n, false
	}
	return c.byKind(n, y, depth)
}

func (c *converter) byKind(n node, y *yaml.Node, depth int) (node, bool) {
	switch y.Kind {
	case yaml.ScalarNode:
		n.kind, n.text = scalarKind(y), y.Value
		return n, true
	case yaml.AliasNode:
		return c.alias(n, y, depth)
	case yaml.MappingNode:
		n.kind = mapNode
	default:
		n.kind = listNode
	}
	n.children = make([]node, 0, len(y.Content))
	for _, child := range y.Content {
		converted, ok := c.convert(child, depth+1)
		if !ok {
			return n, false
		}
		n.children = append(n.children, converted)
	}
	return n, true
}

// alias puts a copy of the anchored value in the alias's place.
func (c *converter) alias(n node, y *yaml.Node, depth int) (node, bool) {
	for _, anchor := range c.within {
		if anchor == y.Alias {
			c.report.add(n.at, "", "alias *"+shorten(y.Value)+" stands within the value that it repeats", "write the value out")
			return n, false
		}
	}
	c.within = append(c.within, y.Alias)
	copied, ok := c.convert(y.Alias, depth)
	c.within = c.within[:len(c.within)-1]
	copied.at = n.at
	return copied, ok
}

func scalarKind(y *yaml.Node) nodeKind {
	switch y.ShortTag() {
	case "!!str", "!!merge":
		return stringNode
	case "!!null":
		return nullNode
	case "!!int":
		return intNode
	case "!!float":
		return floatNode
	case "!!bool":
		return boolNode
	}
	return otherNode
}
