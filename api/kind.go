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

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// newMessage is an empty message for an object of a kind, or nil.
func newMessage(k catalog.Kind) proto.Message {
	switch k {
	case catalog.KindAppEndpoints:
		return &v1alpha1.AppEndpoints{}
	case catalog.KindAppExport:
		return &v1alpha1.AppExport{}
	case catalog.KindAppInstance:
		return &v1alpha1.AppInstance{}
	case catalog.KindCluster:
		return &v1alpha1.Cluster{}
	}
	return nil
}

func knownKind(k catalog.Kind) bool {
	for _, known := range catalog.Kinds() {
		if k == known {
			return true
		}
	}
	return false
}

func kindNames() []string {
	var names []string
	for _, k := range catalog.Kinds() {
		names = append(names, string(k))
	}
	return names
}

func kindList() string { return strings.Join(kindNames(), ", ") }
