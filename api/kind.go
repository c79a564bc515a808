// Package api is the way of objects in and out: strict YAML and JSON to the
// immutable values of package catalog, and back. Nothing unknown, doubled, empty or
// impossible gets in, and every mistake is reported with its place and what to do.
//
// The messages in api/isthmus/v1alpha1 are the one definition of the objects. YAML
// and JSON are read by their descriptors, so there is no second list of fields.
package api

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// newMessage is an empty message for an object of a kind, or nil. The message has the kind's
// name.
func newMessage(k catalog.Kind) proto.Message {
	if !knownKind(k) {
		return nil
	}
	name := v1alpha1.File_isthmus_v1alpha1_objects_proto.Package().Append(protoreflect.Name(k))
	m, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return nil
	}
	return m.New().Interface()
}

func knownKind(k catalog.Kind) bool { return k.Definition() != nil }

func kindNames() []string {
	var names []string
	for _, k := range catalog.Kinds() {
		names = append(names, string(k))
	}
	return names
}

func kindList() string { return strings.Join(kindNames(), ", ") }
