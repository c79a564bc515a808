package kubernetes

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// Definitions is how the custom resources that an API server has differ from those of this program.
type Definitions struct {
	Missing []string // resources without a definition
	Lacking []string // fields that the definitions don't have, as Kind.path: Kubernetes drops them
	Unknown []string // fields that they have and this program doesn't
}

// schema is what is read of one in OpenAPI.
type schema struct {
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Kinds      []struct {
		Kind string `json:"kind"`
	} `json:"x-kubernetes-group-version-kind"`
}

// Definitions compares what the API server publishes of the resources. Everybody whom it knows may
// read that.
func (s *Store) Definitions(ctx context.Context) (Definitions, error) {
	var published struct {
		Components struct {
			Schemas map[string]*schema `json:"schemas"`
		} `json:"components"`
	}
	err := s.look(ctx, "read the definitions", "/openapi/v3/apis/"+catalog.Version, &published)
	if err != nil && apiserver.Code(err) != http.StatusNotFound {
		return Definitions{}, err
	}
	var d Definitions
	for _, r := range s.resources {
		there := kindIn(published.Components.Schemas, r.kind)
		if there == nil {
			d.Missing = append(d.Missing, r.String())
			continue
		}
		message := v1alpha1.File_isthmus_v1alpha1_objects_proto.Messages().ByName(protoreflect.Name(r.kind))
		d.compare(string(r.kind)+".spec", there.Properties["spec"], message.Fields().ByName("spec").Message())
	}
	return d, nil
}

// kindIn is the schema of a kind itself; its list has another kind.
func kindIn(all map[string]*schema, kind catalog.Kind) *schema {
	for _, s := range all {
		for _, k := range s.Kinds {
			if k.Kind == string(kind) {
				return s
			}
		}
	}
	return nil
}

// compare notes the fields that one of both does not have.
func (d *Definitions) compare(path string, there *schema, here protoreflect.MessageDescriptor) {
	if there != nil && there.Items != nil {
		there = there.Items
	}
	if there == nil || len(there.Properties) == 0 {
		return // it says nothing of fields
	}
	known := map[string]bool{}
	for i := range here.Fields().Len() {
		field := here.Fields().Get(i)
		name := field.JSONName()
		known[name] = true
		switch property := there.Properties[name]; {
		case property == nil:
			d.Lacking = append(d.Lacking, path+"."+name)
		case field.Message() != nil:
			d.compare(path+"."+name, property, field.Message())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there.Properties)) {
		if !known[name] {
			d.Unknown = append(d.Unknown, path+"."+name)
		}
	}
}
