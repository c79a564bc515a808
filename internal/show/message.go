package show

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// momentSuffix ends the names of fields that are moments, in Unix milliseconds.
const momentSuffix = "UnixMs"

// StatusOf is a status for programs: all of the message, and what is wrong.
func StatusOf(s *v1alpha1.StatusResponse, now time.Time) map[string]any {
	all := plainMessage(s.ProtoReflect())
	wrong := Unhealthy(s, now)
	if wrong == nil {
		wrong = []Problem{}
	}
	all["healthy"], all["problems"] = len(wrong) == 0, wrong
	return all
}

// Plain is a message for programs, with every field there: numbers as numbers, and moments in
// RFC 3339, under their names without [momentSuffix].
func Plain(m proto.Message) map[string]any { return plainMessage(m.ProtoReflect()) }

func plainMessage(m protoreflect.Message) map[string]any {
	all := map[string]any{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name, moment := strings.CutSuffix(f.JSONName(), momentSuffix)
		v := m.Get(f)
		switch {
		case moment:
			all[name] = stamp(v.Int())
		case f.IsList():
			list := []any{}
			for i := range v.List().Len() {
				list = append(list, plainValue(f, v.List().Get(i)))
			}
			all[name] = list
		case f.Message() != nil && !m.Has(f):
			all[name] = nil
		default:
			all[name] = plainValue(f, v)
		}
	}
	return all
}

func plainValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	if f.Message() != nil {
		return plainMessage(v.Message())
	}
	return v.Interface()
}
