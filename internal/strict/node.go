// Package strict reads YAML, JSON and untyped values so that nothing unknown, doubled,
// empty or of another type passes. Each mistake is an [Error]: its place, the problem and
// the advice.
//
// Every input becomes a tree of [Node] values first. [Decode] and [DecodeValue] fill Go
// structs from it; package api fills protobuf messages.
package strict

import (
	"fmt"
	"strconv"
	"strings"
)

// Node is one value of a document, whether it was written as YAML or JSON or came untyped.
type Node struct {
	Kind     Kind
	At       Position
	Text     string // of a scalar, without quotes
	Children []Node // of a list its items; of a mapping key, value, key, value

	value *any // an untyped scalar as it came
}

// Position is where a value stands. It is zero for values that came untyped.
type Position struct{ Line, Column int32 }

// Kind is the kind of a Node.
type Kind uint8

// The kinds of nodes.
const (
	Null Kind = iota
	String
	Int
	Float
	Bool
	Other // a scalar with a type that no field has, such as a date
	List
	Map
)

// String is the kind as an error names it.
func (k Kind) String() string {
	return [...]string{"null", "a string", "a whole number", "a number with a fraction", "true or false",
		"a date or another special value", "a list", "a mapping"}[k]
}

// Field is the value of a key of a mapping, or nil. Of a doubled key it is the first.
func (n *Node) Field(name string) *Node {
	if n == nil || n.Kind != Map {
		return nil
	}
	for i := 0; i+1 < len(n.Children); i += 2 {
		if n.Children[i].Text == name {
			return &n.Children[i+1]
		}
	}
	return nil
}

// Item is an item of a list, or nil.
func (n *Node) Item(i int) *Node {
	if n == nil || n.Kind != List || i < 0 || i >= len(n.Children) {
		return nil
	}
	return &n.Children[i]
}

// Find follows a path such as "spec.endpoints[2].app" as far as it leads, and returns the
// last node on it. It is for errors only.
func (n *Node) Find(path string) *Node {
	last, _ := n.follow(path)
	return last
}

// follow is Find, and tells whether that node is the end of the path.
func (n *Node) follow(path string) (last *Node, whole bool) {
	for step := range strings.SplitSeq(path, ".") {
		name, index, indexed := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		next := n.Field(name)
		if next == nil {
			return n, false
		}
		n = next
		if !indexed {
			continue
		}
		i, err := strconv.Atoi(index)
		if err != nil {
			return n, false
		}
		if next = n.Item(i); next == nil {
			return n, false
		}
		n = next
	}
	return n, true
}

// shown is the value as an error may quote it. What looks like an address may hold a
// password, and is not shown.
func (n *Node) shown() string {
	switch {
	case n.Kind == Map || n.Kind == List || n.Kind == Null:
		return n.Kind.String()
	case strings.Contains(n.Text, "@") || strings.Contains(n.Text, "://"):
		return "a text"
	case n.Kind == String:
		return fmt.Sprintf("%q", Shorten(n.Text))
	default:
		return Shorten(n.Text)
	}
}

// Shorten keeps what a user wrote from flooding an error.
func Shorten(s string) string {
	const most = 80
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
