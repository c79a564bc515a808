package crd

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// read reads the definitions that are committed, by their kind.
func read(t *testing.T) map[catalog.Kind]definition {
	t.Helper()
	file, err := os.Open("../../deploy/kubernetes/crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := map[catalog.Kind]definition{}
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	for range catalog.Kinds() {
		var d definition
		if err := decoder.Decode(&d); err != nil {
			t.Fatal(err)
		}
		all[catalog.Kind(d.Spec.Names.Kind)] = d
	}
	return all
}

// TestEveryFieldIsDefined holds the definitions to the messages: whoever adds a field and
// forgets "make generate" is told, and whoever forgets to say what it is, too.
func TestEveryFieldIsDefined(t *testing.T) {
	all := read(t)
	for _, m := range []protoreflect.ProtoMessage{&v1alpha1.AppEndpoints{}, &v1alpha1.AppExport{}, &v1alpha1.AppInstance{}, &v1alpha1.Cluster{}} {
		d := m.ProtoReflect().Descriptor()
		definition, ok := all[catalog.Kind(d.Name())]
		if !ok {
			t.Errorf("%s has no definition", d.Name())
			continue
		}
		root := definition.Spec.Versions[0].Schema["openAPIV3Schema"]
		holds(t, string(d.Name()), d, &root)
	}
}

func holds(t *testing.T, path string, d protoreflect.MessageDescriptor, s *schema) {
	t.Helper()
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		name := path + "." + field.JSONName()
		property := s.Properties[field.JSONName()]
		if property == nil {
			t.Errorf("%s is not defined; run make generate", name)
			continue
		}
		if name := field.JSONName(); name == "metadata" {
			continue
		}
		if property.Description == "" {
			t.Errorf("%s has no description", name)
		}
		bounded(t, name, path, field, property)
		if field.IsList() {
			property = property.Items
		}
		if field.Message() != nil {
			holds(t, name, field.Message(), property)
		}
	}
}

// bounded holds that a field has bounds: without them an API server refuses rules that
// look at it, and takes what Isthmus does not.
func bounded(t *testing.T, name, path string, field protoreflect.FieldDescriptor, s *schema) {
	t.Helper()
	switch {
	case !strings.Contains(path+".", ".spec."):
	case field.IsList() && s.MaxItems == nil:
		t.Errorf("%s: is a list with no maxItems", name)
	case s.Type == "string" && s.MaxLength == nil && s.Enum == nil:
		t.Errorf("%s: is a string with neither maxLength nor enum", name)
	case s.Type == "integer" && s.Maximum == nil:
		t.Errorf("%s: is a number with no maximum", name)
	}
}

// TestTheRulesKnowTheReservedNames asks of names that may be reserved one day.
func TestTheRulesKnowTheReservedNames(t *testing.T) {
	for _, name := range []string{"local", "cli", "self", "all", "any", "none", "default", "isthmus", "resolver"} {
		refused := catalog.CheckCluster(name) != nil
		known := strings.Contains(quoted(reserved()), "'"+name+"'")
		if refused != known {
			t.Errorf("cluster name %q: reserved by catalog: %t, by the definitions: %t", name, refused, known)
		}
	}
}
