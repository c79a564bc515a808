package api

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// EncodeYAML is an object as "isthmus get -o yaml" prints it: fields in the order of
// their definition, defaults left out, the same bytes for the same object. Messages
// with nothing but scalars are written in one line.
func EncodeYAML(obj catalog.Object) []byte { return EncodeYAMLAt(obj, "") }

// EncodeYAMLAt is [EncodeYAML] with the object's revision in its metadata, on the same
// lines.
func EncodeYAMLAt(obj catalog.Object, revision string) []byte {
	return appendYAML(nil, at(obj, revision), "")
}

// at is an object's message with a revision in its metadata.
func at(obj catalog.Object, revision string) protoreflect.Message {
	m := ToProto(obj)
	m.(interface{ GetMetadata() *v1alpha1.Metadata }).GetMetadata().Revision = revision
	return m.ProtoReflect()
}

// appendYAML writes the fields of a message, each on lines of its own.
func appendYAML(b []byte, m protoreflect.Message, indent string) []byte {
	for i, field := range shown(m) {
		if i > 0 || indent == "" || b[len(b)-1] == '\n' {
			b = append(b, indent...)
		}
		b = append(b, field.JSONName()...)
		b = append(b, ':')
		value := m.Get(field)
		switch {
		case field.IsList():
			b = appendYAMLList(b, value.List(), field, indent)
		case field.Kind() == protoreflect.MessageKind && (!flat(field.Message()) || hasBlock(value.Message())):
			b = append(b, '\n')
			b = appendYAML(b, value.Message(), indent+"  ")
		case field.Kind() == protoreflect.MessageKind:
			b = append(b, ' ')
			b = append(appendFlow(b, value.Message()), '\n')
		case isBlock(value, field):
			b = appendBlock(b, value.String(), indent+"  ")
		default:
			b = append(b, ' ')
			b = append(appendYAMLScalar(b, value, field), '\n')
		}
	}
	return b
}

func appendYAMLList(b []byte, list protoreflect.List, field protoreflect.FieldDescriptor, indent string) []byte {
	if list.Len() == 0 {
		return append(b, " []\n"...)
	}
	b = append(b, '\n')
	for i := range list.Len() {
		b = append(b, indent...)
		b = append(b, "- "...)
		if field.Kind() != protoreflect.MessageKind {
			b = append(appendYAMLScalar(b, list.Get(i), field), '\n')
			continue
		}
		item := list.Get(i).Message()
		if flat(item.Descriptor()) {
			b = append(appendFlow(b, item), '\n')
		} else {
			b = appendYAML(b, item, indent+"  ")
		}
	}
	return b
}

func appendFlow(b []byte, m protoreflect.Message) []byte {
	b = append(b, '{')
	for i, field := range shown(m) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, field.JSONName()...)
		b = append(b, ": "...)
		if field.IsList() {
			b = appendFlowList(b, m.Get(field).List(), field)
		} else {
			b = appendYAMLScalar(b, m.Get(field), field)
		}
	}
	return append(b, '}')
}

func appendFlowList(b []byte, list protoreflect.List, field protoreflect.FieldDescriptor) []byte {
	b = append(b, '[')
	for i := range list.Len() {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendYAMLScalar(b, list.Get(i), field)
	}
	return append(b, ']')
}

func appendYAMLScalar(b []byte, value protoreflect.Value, field protoreflect.FieldDescriptor) []byte {
	switch field.Kind() {
	case protoreflect.Uint32Kind:
		return strconv.AppendUint(b, value.Uint(), 10)
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, value.Bool())
	}
	if s := value.String(); !plain(s) && !writesNumber(field, s) {
		return appendQuoted(b, s)
	}
	return append(b, value.String()...)
}

// plain tells whether every YAML reader takes s for a string without quotes.
func plain(s string) bool {
	if s == "" || (s[0]|0x20) < 'a' || (s[0]|0x20) > 'z' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '.' && c != '/' {
			return false
		}
	}
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf":
		return false
	}
	return true
}

// flat tells whether a message has nothing but scalars, and lists of them.
func flat(d protoreflect.MessageDescriptor) bool {
	for i := range d.Fields().Len() {
		if field := d.Fields().Get(i); field.Kind() == protoreflect.MessageKind {
			return false
		}
	}
	return true
}

// isBlock tells whether a value is text of several lines, which is written as it is. Such
// are only the roots of a Cluster: PEM that was made here has nothing in it that a block
// can't hold, and other fields may begin like it.
func isBlock(value protoreflect.Value, field protoreflect.FieldDescriptor) bool {
	return field.FullName() == rootsField && strings.HasPrefix(value.String(), pemBegin) && strings.HasSuffix(value.String(), "\n")
}

// rootsField is the field that [validator.roots] makes.
const rootsField protoreflect.FullName = "isthmus.v1alpha1.Trust.roots"

func hasBlock(m protoreflect.Message) bool {
	block := false
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		block = block || isBlock(value, field)
		return !block
	})
	return block
}

// appendBlock writes a literal block (YAML 1.2.2, 8.1.2).
func appendBlock(b []byte, s, indent string) []byte {
	b = append(b, " |\n"...)
	for line := range strings.Lines(s) {
		b = append(append(b, indent...), line...)
	}
	return b
}

// headLines is how many lines stand before the first endpoint in the canonical YAML:
// apiVersion, kind, metadata, spec, endpoints.
const headLines = 5

// canonicalLines sets the endpoints' lines to those of [EncodeYAML], by counting.
func canonicalLines(s *catalog.AppEndpoints) {
	line := headLines + 1
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Line = int32(line)
		line++ // app
		if e.App.Namespace != s.App.Namespace {
			line++
		}
		if len(e.Routes) > 0 {
			line += 1 + len(e.Routes)
		}
		if e.WhenStale != catalog.Withdraw {
			line++
		}
		if e.Locality != catalog.DefaultLocality {
			line++
		}
	}
}
