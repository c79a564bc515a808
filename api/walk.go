package api

import (
	"github.com/isthmus-mesh/isthmus/internal/strict"

	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// walker fills a message from a node, by the message's descriptor. It goes on after
// a mistake, so that all of them are reported, until the report is full.
type walker struct {
	report *strict.Report
	path   []step
}

// step is one part of a path: a field, or an item of a list.
type step struct {
	field string
	index int // when field is empty
}

// pathString is the path of the value that is being read, with more appended to it.
func (w *walker) pathString(more ...string) string {
	var b strings.Builder
	for _, s := range w.path {
		if s.field == "" {
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.field)
	}
	for _, name := range more {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(name)
	}
	return b.String()
}

func (w *walker) refuse(n *strict.Node, what, fix string) {
	w.report.Add(n.At, w.pathString(), what, fix)
}

// message fills m from a mapping.
func (w *walker) message(m protoreflect.Message, n *strict.Node) {
	if n.Kind != strict.Map {
		w.refuse(n, "is "+n.Kind.String()+" where a mapping is wanted", "write its fields: "+strings.Join(fieldNames(m.Descriptor()), ", "))
		return
	}
	fields := m.Descriptor().Fields()
	var seen uint64
	for i := 0; i+1 < len(n.Children) && !w.report.Full(); i += 2 {
		key, value := &n.Children[i], &n.Children[i+1]
		field := fields.ByJSONName(key.Text)
		if field == nil || key.Kind != strict.String {
			w.unknown(m.Descriptor(), key)
			continue
		}
		w.path = append(w.path, step{field: key.Text})
		if bit := uint64(1) << field.Index(); seen&bit != 0 {
			first := n.Field(key.Text)
			what, fix := fmt.Sprintf("is there twice, first in line %d", first.At.Line), "keep one of them"
			if len(w.path) == 1 && (key.Text == "apiVersion" || key.Text == "kind") {
				w.report.Add(key.At, w.pathString(), what, "if another object begins here, write a line with --- before it")
				w.path = w.path[:0]
				return // what follows is that object's
			}
			w.report.Add(key.At, w.pathString(), what, fix)
		} else {
			seen |= bit
			w.value(m, field, value)
		}
		w.path = w.path[:len(w.path)-1]
	}
}

func (w *walker) unknown(d protoreflect.MessageDescriptor, key *strict.Node) {
	w.report.Unknown(key.At, w.pathString(strict.Shorten(key.Text)), key.Text, fieldNames(d))
}

func (w *walker) value(m protoreflect.Message, field protoreflect.FieldDescriptor, n *strict.Node) {
	switch {
	case n.Kind == strict.Null:
		w.refuse(n, "has no value", noValueFix(field))
	case field.IsList():
		w.list(m.Mutable(field).List(), field, n)
	case field.Kind() == protoreflect.MessageKind:
		w.message(m.Mutable(field).Message(), n)
	case field.Kind() == protoreflect.Uint32Kind:
		if v, ok := w.number(n); ok {
			m.Set(field, protoreflect.ValueOfUint32(v))
		}
	case field.Kind() == protoreflect.BoolKind:
		if n.Kind != strict.Bool || n.Text != "true" && n.Text != "false" {
			w.refuse(n, "is "+n.Kind.String()+" where true or false is wanted", "write true or false, without quotes")
			return
		}
		m.Set(field, protoreflect.ValueOfBool(n.Text == "true"))
	default:
		if v, ok := w.text(n); ok {
			m.Set(field, protoreflect.ValueOfString(v))
		}
	}
}

func noValueFix(field protoreflect.FieldDescriptor) string {
	if field.IsList() {
		return "write [] for an empty list, or leave the field out"
	}
	if field.Kind() == protoreflect.MessageKind && field.Parent().Name() == "HealthCheck" {
		return "write {} for what is the default in it, or leave the field out"
	}
	return "give it one, or leave the field out"
}

// list fills a list of messages, or of strings: one that can't be read is empty.
func (w *walker) list(l protoreflect.List, field protoreflect.FieldDescriptor, n *strict.Node) {
	if n.Kind != strict.List {
		w.refuse(n, "is "+n.Kind.String()+" where a list is wanted", "begin each item with \"- \"")
		return
	}
	for i := range n.Children {
		if w.report.Full() {
			return
		}
		w.path = append(w.path, step{index: i})
		if field.Kind() == protoreflect.MessageKind {
			w.message(l.AppendMutable().Message(), &n.Children[i])
		} else {
			text, _ := w.text(&n.Children[i])
			l.Append(protoreflect.ValueOfString(text))
		}
		w.path = w.path[:len(w.path)-1]
	}
}

func (w *walker) number(n *strict.Node) (uint32, bool) {
	if n.Kind != strict.Int {
		w.refuse(n, "is "+n.Kind.String()+" where a whole number is wanted", "write a number such as 1, without quotes")
		return 0, false
	}
	v, err := strconv.ParseUint(n.Text, 10, 32)
	if err != nil || strict.Octal(n.Text) {
		w.refuse(n, strict.Shorten(n.Text)+" is not a number from 0 to 4294967295 in plain digits", "write a number such as 1")
		return 0, false
	}
	return uint32(v), true
}

// orNumbers are fields of text that also take a number, as Kubernetes' IntOrString does.
var orNumbers = []string{"minReady"}

// writesNumber tells whether a text is written as a number.
func writesNumber(field protoreflect.FieldDescriptor, s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil && slices.Contains(orNumbers, field.JSONName())
}

// text reads a string. An empty one is refused: in "allow" it would mean anybody,
// which nobody should get by way of a template that was given nothing.
func (w *walker) text(n *strict.Node) (string, bool) {
	kind := n.Kind
	if kind == strict.Int && slices.Contains(orNumbers, w.path[len(w.path)-1].field) {
		kind = strict.String
	}
	switch kind {
	case strict.String:
		if n.Text == "" {
			w.refuse(n, "is empty", "give it a value, or leave the field out")
			return "", false
		}
		return n.Text, true
	case strict.Int, strict.Float, strict.Bool, strict.Other:
		if slices.Contains(lengths, w.path[len(w.path)-1].field) {
			w.refuse(n, fmt.Sprintf("%s is %s where a length of time is wanted", strict.Shorten(n.Text), n.Kind), fmt.Sprintf("write one with its unit, such as \"%ss\"", strict.Shorten(n.Text)))
			break
		}
		w.refuse(n, fmt.Sprintf("%s is %s where a string is wanted", strict.Shorten(n.Text), n.Kind), fmt.Sprintf("put it in quotes: %q", strict.Shorten(n.Text)))
	default:
		w.refuse(n, "is "+n.Kind.String()+" where a string is wanted", "write one value")
	}
	return "", false
}

// lengths are the fields that hold a length of time.
var lengths = []string{"staleAfter", "rampUp", "interval", "timeout"}

func fieldNames(d protoreflect.MessageDescriptor) []string {
	names := make([]string, d.Fields().Len())
	for i := range names {
		names[i] = d.Fields().Get(i).JSONName()
	}
	return names
}
