package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// printer writes messages as JSON by the convention of docs/reference/json.md: as protojson names them,
// with every field there, but numbers of 64 bits are numbers, and what [shapeOf] says is in another shape.
type printer struct{ bytes.Buffer }

// shape is how a field is printed.
type shape int

const (
	plain   shape = iota
	moment        // Unix milliseconds, as RFC 3339
	micros        // microseconds, as milliseconds
	named         // an App, as namespace/app-id
	inlined       // an ObjectKey, as fields of the message that has it
	entries       // names and values, as an object
	encoded       // bytes, which are an object in JSON
	lowered       // a word
)

// shapeOf is how a field is printed, and under which name.
func shapeOf(f protoreflect.FieldDescriptor) (name string, s shape) {
	name = f.JSONName()
	if before, ok := strings.CutSuffix(name, "UnixMs"); ok {
		return before, moment
	}
	if before, ok := strings.CutSuffix(name, "Us"); ok && f.Kind() == protoreflect.Int64Kind {
		return before + "Ms", micros
	}
	switch m := f.Message(); {
	case f.Kind() == protoreflect.BytesKind:
		return name, encoded
	case name == "level":
		return name, lowered
	case m == nil:
	case m.FullName() == nameOf[*v1alpha1.App]():
		return name, named
	case m.FullName() == nameOf[*v1alpha1.ObjectKey]() && !f.IsList():
		return name, inlined
	case m.FullName() == nameOf[*v1alpha1.EventField]():
		return name, entries
	}
	return name, plain
}

func nameOf[M protoreflect.ProtoMessage]() protoreflect.FullName {
	var m M
	return m.ProtoReflect().Descriptor().FullName()
}

func (p *printer) object(m protoreflect.Message) {
	p.WriteByte('{')
	p.fields(m, false)
	p.WriteByte('}')
}

// fields writes the fields of a message, behind others or not.
func (p *printer) fields(m protoreflect.Message, behind bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name, shape := shapeOf(f)
		if behind {
			p.WriteByte(',')
		}
		behind = true
		if shape == inlined {
			p.fields(m.Get(f).Message(), false)
			continue
		}
		fmt.Fprintf(p, "%q:", name)
		v := m.Get(f)
		switch {
		case shape == entries:
			p.pairs(v.List())
		case f.IsList():
			p.list(f, shape, v.List())
		case shape == moment:
			p.text(momentOf(m, v.Int()))
		case shape == plain && f.Message() != nil && !m.Has(f):
			p.WriteString("null")
		default:
			p.value(f, shape, v)
		}
	}
}

func (p *printer) list(f protoreflect.FieldDescriptor, s shape, all protoreflect.List) {
	p.WriteByte('[')
	for i := range all.Len() {
		if i > 0 {
			p.WriteByte(',')
		}
		p.value(f, s, all.Get(i))
	}
	p.WriteByte(']')
}

// pairs writes names and values as an object, in which the last of a name stands.
func (p *printer) pairs(all protoreflect.List) {
	fields := make([]*v1alpha1.EventField, all.Len())
	for i := range fields {
		fields[i] = all.Get(i).Message().Interface().(*v1alpha1.EventField)
	}
	p.WriteByte('{')
	for i, one := range fields {
		if slices.ContainsFunc(fields[i+1:], func(f *v1alpha1.EventField) bool { return f.GetName() == one.GetName() }) {
			continue
		}
		if p.Bytes()[p.Len()-1] != '{' {
			p.WriteByte(',')
		}
		p.text(one.GetName())
		p.WriteByte(':')
		p.text(one.GetValue())
	}
	p.WriteByte('}')
}

func (p *printer) value(f protoreflect.FieldDescriptor, s shape, v protoreflect.Value) {
	switch {
	case s == named:
		p.text(Name(v.Message().Interface().(*v1alpha1.App)))
	case s == encoded && len(v.Bytes()) == 0:
		p.WriteString("null")
	case s == encoded:
		p.Write(v.Bytes())
	case s == micros:
		fmt.Fprint(p, float64(v.Int())/1000)
	case s == lowered:
		p.text(strings.ToLower(v.String()))
	case f.Message() != nil:
		p.object(v.Message())
	case f.Kind() == protoreflect.StringKind:
		p.text(v.String())
	default:
		fmt.Fprint(p, v.Interface())
	}
}

// text writes a text. What nobody sees is escaped: it would be for a terminal, and YAML has none of it.
func (p *printer) text(s string) {
	from := p.Len()
	e := json.NewEncoder(p)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a buffer takes all
	p.Truncate(p.Len() - 1)
	unseen := func(r rune) bool { return !unicode.IsPrint(r) && r <= 0xffff }
	if !strings.ContainsFunc(s, unseen) {
		return
	}
	quoted := string(p.Bytes()[from:])
	p.Truncate(from)
	for _, r := range quoted {
		if unseen(r) {
			fmt.Fprintf(p, `\u%04x`, r)
		} else {
			p.WriteRune(r)
		}
	}
}

// momentOf is a moment of a message. Several events may be in a second.
func momentOf(m protoreflect.Message, unixMs int64) string {
	if _, ok := m.Interface().(*v1alpha1.Event); ok {
		return time.UnixMilli(unixMs).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	return Stamp(unixMs)
}

// Stamp is a moment as everybody reads it, and programs too.
func Stamp(unixMs int64) string {
	if unixMs == 0 {
		return ""
	}
	return time.UnixMilli(unixMs).UTC().Format(time.RFC3339)
}

// Name is an app in a text; empty without an app.
func Name(a *v1alpha1.App) string {
	switch {
	case a.GetId() == "":
		return ""
	case a.GetNamespace() == "":
		return a.GetId()
	}
	return a.GetNamespace() + "/" + a.GetId()
}
