package api

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func objectsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/objects.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestTheExamplesOfTheDocsAreGood(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(objectsPage(t), -1)
	kinds := map[catalog.Kind]bool{}
	for _, block := range blocks {
		if objs, errs := DecodeYAML("docs/reference/objects.md", []byte(block[1])); len(objs) != 1 || len(errs) != 0 {
			t.Errorf("example\n%s\nis refused: %v", block[1], errs)
		} else {
			kinds[objs[0].Key().Kind] = true
		}
	}
	if len(kinds) != len(catalog.Kinds()) {
		t.Errorf("examples of %v, want one of each kind", kinds)
	}
}

func TestTheDocsNameEveryField(t *testing.T) {
	page := objectsPage(t)
	var walk func(d protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		for i := range d.Fields().Len() {
			field := d.Fields().Get(i)
			if !strings.Contains(page, field.JSONName()) {
				t.Errorf("docs/reference/objects.md says nothing of %s", field.FullName())
			}
			if field.Kind() == protoreflect.MessageKind {
				walk(field.Message())
			}
		}
	}
	for _, k := range catalog.Kinds() {
		walk(newMessage(k).ProtoReflect().Descriptor())
	}
}

// TestTheDocsQuoteWhatIsSaid holds the table of refusals to what the decoder says.
func TestTheDocsQuoteWhatIsSaid(t *testing.T) {
	var said strings.Builder
	for _, c := range apitest.Refusals() {
		_, errs := DecodeYAML("f.yaml", []byte(c.Text))
		said.WriteString(errs.Error() + "\n")
	}
	twice := apitest.Object("Cluster", "{name: east}", "{network: a}")
	_, errs := DecodeYAML("f.yaml", []byte(twice+"---\n"+twice))
	said.WriteString(errs.Error())
	_, table, _ := strings.Cut(objectsPage(t), "## Every refusal")
	rows := regexp.MustCompile("(?m)^\\| `(.*?)` \\|").FindAllStringSubmatch(table, -1)
	if len(rows) < 30 {
		t.Fatalf("%d refusals in the docs, want all", len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(said.String(), row[1]) {
			t.Errorf("docs/reference/objects.md quotes %q, which is said of no mistake", row[1])
		}
	}
}
