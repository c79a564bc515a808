package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// manifests reads the YAML documents of a file below deploy/kubernetes.
func manifests[T any](t *testing.T, name string) (all []T) {
	t.Helper()
	file, err := os.Open("../deploy/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for decoder := yaml.NewDecoder(file); ; {
		var one T
		if decoder.Decode(&one) != nil {
			return all
		}
		all = append(all, one)
	}
}

// TestEveryMessageOfAnObjectIsAKind holds the table of kinds to the protobuf.
func TestEveryMessageOfAnObjectIsAKind(t *testing.T) {
	messages := v1alpha1.File_isthmus_v1alpha1_objects_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.Fields().ByName("api_version") != nil && catalog.Kind(m.Name()).Definition() == nil {
			t.Errorf("message %s has no row in catalog/kind.go", m.Name())
		}
	}
	for _, kind := range catalog.Kinds() {
		if messages.ByName(protoreflect.Name(kind)) == nil {
			t.Errorf("%s has no message in objects.proto", kind)
		}
	}
}

func TestNamesOfKindsAreComplete(t *testing.T) {
	seen := map[string]catalog.Kind{}
	for _, d := range catalog.Definitions() {
		for _, name := range []string{d.Plural, d.Singular, d.Short} {
			if other, doubled := seen[name]; doubled || name == "" || name != strings.ToLower(name) {
				t.Errorf("%s has the name %q, as %q", d.Kind, name, other)
			}
			seen[name] = d.Kind
		}
		if !slices.ContainsFunc(d.Columns, func(c catalog.Column) bool { return c.Value != nil }) {
			t.Errorf("%s has no column for isthmus get", d.Kind)
		}
	}
}

// TestEveryKindHasExamples holds that the decoder and the encoder know a kind.
func TestEveryKindHasExamples(t *testing.T) {
	for _, d := range catalog.Definitions() {
		found := false
		for _, text := range apitest.Accepted() {
			objects, errs := api.DecodeYAML("f.yaml", []byte(text))
			for _, o := range objects {
				if o.Key().Kind != d.Kind || len(errs) > 0 {
					continue
				}
				found = true
				again, err := api.DecodeJSON(api.KeyPath(o.Key()), api.EncodeJSON(o))
				if err != nil || again.Key() != o.Key() {
					t.Errorf("%s is not read as it was written: %v", o.Key(), err)
				}
				for _, c := range d.Columns {
					if c.Value != nil && c.Value(o) == "" && c.Heading != "NETWORK" {
						t.Errorf("%s has an empty column %s", o.Key(), c.Heading)
					}
				}
			}
		}
		if !found {
			t.Errorf("api/apitest has no %s that is accepted", d.Kind)
		}
	}
}

func TestEveryKindHasItsCustomResource(t *testing.T) {
	type definition struct {
		Spec struct {
			Scope string `yaml:"scope"`
			Names struct {
				Kind       string   `yaml:"kind"`
				Plural     string   `yaml:"plural"`
				ShortNames []string `yaml:"shortNames"`
			} `yaml:"names"`
		} `yaml:"spec"`
	}
	all := manifests[definition](t, "crds.yaml")
	for _, d := range catalog.Definitions() {
		i := slices.IndexFunc(all, func(c definition) bool { return c.Spec.Names.Kind == string(d.Kind) })
		if i < 0 {
			t.Errorf("deploy/kubernetes/crds.yaml has no %s; run make generate", d.Kind)
			continue
		}
		names := all[i].Spec.Names
		if names.Plural != d.Plural || !slices.Equal(names.ShortNames, []string{d.Short}) || (all[i].Spec.Scope == "Cluster") != d.Clusterwide {
			t.Errorf("deploy/kubernetes/crds.yaml has %+v; run make generate", all[i].Spec)
		}
	}
}

func TestEveryKindHasItsPermissions(t *testing.T) {
	type role struct {
		Kind     string `yaml:"kind"`
		Metadata struct {
			Name string `yaml:"name"`
		} `yaml:"metadata"`
		Rules []struct {
			Resources []string `yaml:"resources"`
			Verbs     []string `yaml:"verbs"`
		} `yaml:"rules"`
	}
	may := map[string]bool{}
	for _, r := range manifests[role](t, "rbac.yaml") {
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					may[verb+" "+resource] = true
				}
			}
		}
	}
	for _, d := range catalog.Definitions() {
		for _, needed := range []string{"get " + d.Plural, "list " + d.Plural, "watch " + d.Plural, "create " + d.Plural, "update " + d.Plural, "delete " + d.Plural, "patch " + d.Plural + "/status"} {
			if !may[needed] {
				t.Errorf("deploy/kubernetes/rbac.yaml lets nobody %s", needed)
			}
		}
	}
}

func TestEveryKindHasAPage(t *testing.T) {
	var headings strings.Builder
	err := filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				headings.WriteString(line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range catalog.Kinds() {
		if !strings.Contains(headings.String(), string(kind)) {
			t.Errorf("no page in docs has a heading for %s", kind)
		}
	}
}
