package api

import (
	"strconv"
	"strings"
)

// A node is one value of a document, whether it was written as YAML or as JSON.
// Both are read into nodes, and everything after that is the same for both.
type node struct {
	kind     nodeKind
	at       position
	text     string // of a scalar, without quotes
	children []node // of a list its items; of a mapping key, value, key, value
}

type position struct{ line, column int }

type nodeKind uint8

const (
	nullNode nodeKind = iota
	stringNode
	intNode
	floatNode
	boolNode
	otherNode // a scalar with a type that no field has, such as a date
	listNode
	mapNode
)

// String is the kind as an error names it.
func (k nodeKind) String() string {
	return [...]string{"null", "a string", "a whole number", "a number with a fraction", "true or false",
		"a date or another special value", "a list", "a mapping"}[k]
}

// field is the value of a key of a mapping, or nil. Of a doubled key it is the first.
func (n *node) field(name string) *node {
	if n == nil || n.kind != mapNode {
		return nil
	}
	for i := 0; i+1 < len(n.children); i += 2 {
		if n.children[i].text == name {
			return &n.children[i+1]
		}
	}
	return nil
}

// item is an item of a list, or nil.
func (n *node) item(i int) *node {
	if n == nil || n.kind != listNode || i < 0 || i >= len(n.children) {
		return nil
	}
	return &n.children[i]
}

// find follows a path such as "spec.endpoints[2].app" as far as it leads, and
// returns the last node on it. It is for errors only.
func (n *node) find(path string) *node {
	for step := range strings.SplitSeq(path, ".") {
		name, index, indexed := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		next := n.field(name)
		if next == nil {
			return n
		}
		n = next
		if !indexed {
			continue
		}
		i, err := strconv.Atoi(index)
		if err != nil {
			return n
		}
		if next = n.item(i); next == nil {
			return n
		}
		n = next
	}
	return n
}
