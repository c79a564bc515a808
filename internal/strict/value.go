package strict

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// DecodeValue fills the struct that into points to from an untyped value, as daprd hands one
// over. Mistakes have paths below path, and no place.
func DecodeValue(path string, from, into any) Errors {
	var r Report
	n := nodeOf(reflect.ValueOf(from))
	fill(path, &n, into, &r)
	return r.Errors
}

// nodeOf is an untyped value as a node. Numbers that came by JSON are floating-point. The
// fields of a mapping are in order, so that mistakes are.
func nodeOf(v reflect.Value) Node {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if !v.IsValid() {
		return Node{}
	}
	value := v.Interface()
	n := Node{Kind: Other, value: &value}
	switch {
	case v.Kind() == reflect.Map:
		n = Node{Kind: Map}
		for it := v.MapRange(); it.Next(); {
			n.Children = append(n.Children, nodeOf(it.Key()), nodeOf(it.Value()))
		}
		sortFields(n.Children)
	case v.Kind() == reflect.Slice:
		n = Node{Kind: List, Children: make([]Node, v.Len())}
		for i := range n.Children {
			n.Children[i] = nodeOf(v.Index(i))
		}
	case v.Kind() == reflect.String:
		n.Kind = String
	case v.Kind() == reflect.Bool:
		n.Kind = Bool
	case v.CanInt() || v.CanUint():
		n.Kind = Int
	case v.CanFloat() && v.Float() == math.Trunc(v.Float()) && math.Abs(v.Float()) < 1<<53:
		n.Kind, n.Text = Int, strconv.FormatFloat(v.Float(), 'f', -1, 64)
	case v.CanFloat():
		n.Kind = Float
	}
	if n.value != nil && n.Text == "" {
		n.Text = fmt.Sprint(value)
	}
	return n
}

func sortFields(children []Node) {
	pairs := slices.Collect(slices.Chunk(slices.Clone(children), 2))
	slices.SortFunc(pairs, func(a, b []Node) int { return cmp.Compare(a[0].Text, b[0].Text) })
	for i, pair := range pairs {
		copy(children[2*i:], pair)
	}
}

// plain is a node as an untyped value, with all mappings in it as map[string]any. It is nil
// for null, and after a mistake.
func (f filler) plain(path string, n *Node) any {
	switch n.Kind {
	case Null:
		return nil
	case List:
		list := make([]any, len(n.Children))
		for i := range list {
			list[i] = f.plain(fmt.Sprintf("%s[%d]", path, i), &n.Children[i])
		}
		return list
	case Map:
		m := make(map[string]any, len(n.Children)/2)
		for i := 0; i+1 < len(n.Children); i += 2 {
			key := &n.Children[i]
			if key.Kind != String {
				f.Add(key.At, path, fmt.Sprintf("has the key %s", Shorten(key.Text)), "write keys as text")
				return nil
			}
			m[key.Text] = f.plain(join(path, key.Text), &n.Children[i+1])
		}
		return m
	}
	if n.value == nil {
		return n.Text
	}
	return *n.value
}
