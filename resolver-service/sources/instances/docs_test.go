package instances_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/consul"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/kubernetes"
)

// TestThePageShowsWhatIsRead holds what docs/reference/instances.md shows of each source's settings
// to what the source takes, and its roles to those that there are.
func TestThePageShowsWhatIsRead(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/instances.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, match := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		var top struct {
			Instances map[string]any `yaml:"instances"`
		}
		if err := yaml.Unmarshal([]byte(match[1]), &top); err != nil {
			t.Errorf("%v\n%s", err, match[1])
		}
		for kind, from := range top.Instances {
			shown = append(shown, kind)
			var into interface{ Check() error }
			switch kind {
			case "kubernetes":
				into = &kubernetes.Config{}
			case "consul":
				into = &consul.Config{}
			default:
				continue
			}
			for _, err := range append(strict.DecodeValue("instances."+kind, from, into), strict.Below("instances."+kind, into.Check())...) {
				t.Errorf("%v\n%s", err, match[1])
			}
		}
	}
	for _, kind := range []string{"kubernetes", "consul"} {
		if !slices.Contains(shown, kind) {
			t.Errorf("the page shows no settings of %s", kind)
		}
	}
	roles, err := os.ReadFile("../../../deploy/kubernetes/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"isthmus-instances", "isthmus-instances-pods"} {
		if !strings.Contains(string(roles), "name: "+role+"\n") || !strings.Contains(string(text), "`"+role+"`") {
			t.Errorf("the role %s is not in the manifest, or not on the page", role)
		}
	}
}
