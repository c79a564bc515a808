package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// revisions are as stores make them: numbers, hashes, and what nobody has thought of.
var revisions = []string{"", "1", "0012", "a3f", "1e3", "12-ab", `"'#: {}`, "überall", "null"}

func TestARevisionComesBackWithTheObject(t *testing.T) {
	for _, obj := range designObjects() {
		for _, revision := range revisions {
			text := EncodeYAMLAt(obj, revision)
			got, errs := DecodeManifests("f.yaml", text)
			if len(errs) > 0 || len(got) != 1 || got[0].Revision != revision || !bytes.Equal(EncodeJSON(got[0].Object), EncodeJSON(obj)) {
				t.Errorf("revision %q came back in %+v (%v) from\n%s", revision, got, errs, text)
			}
			if got, errs := DecodeManifests("f.json", EncodeJSONAt(obj, revision)); len(errs) > 0 || len(got) != 1 || got[0].Revision != revision {
				t.Errorf("revision %q came back in %+v (%v) from JSON", revision, got, errs)
			}
		}
	}
}

func TestARevisionIsNoPartOfTheObject(t *testing.T) {
	for _, obj := range designObjects() {
		with, without := EncodeYAMLAt(obj, "12"), EncodeYAML(obj)
		if bytes.Count(with, []byte("\n")) != bytes.Count(without, []byte("\n")) {
			t.Errorf("the revision moves the lines that rules name:\n%s", with)
		}
		stored, err := DecodeJSON(KeyPath(obj.Key()), EncodeJSONAt(obj, "12"))
		if err != nil || !bytes.Equal(EncodeJSON(stored), EncodeJSON(obj)) {
			t.Errorf("%s with a revision was read from a store as %v (%v)", obj.Key(), stored, err)
		}
		if objects, errs := DecodeYAML("f.yaml", with); len(errs) > 0 || strings.Contains(string(EncodeYAML(objects[0])), "revision") {
			t.Errorf("%s with a revision was read from a file as %v (%v)", obj.Key(), objects, errs)
		}
	}
}

func TestARevisionIsAString(t *testing.T) {
	for text, want := range map[string]string{
		"{name: east, revision: 12}":    `put it in quotes: "12"`,
		"{name: east, revision: ''}":    "is empty",
		"{name: east, revision: }":      "has no value",
		"{name: east, revison: '1'}":    `did you mean "revision"?`,
		"{name: east, revision: [one]}": "is a list where a string is wanted",
	} {
		_, errs := DecodeManifests("f.yaml", []byte(apitest.Object(string(catalog.KindCluster), text, "{network: a}")))
		if !strings.Contains(errs.Error(), want) {
			t.Errorf("%s: %v, want %s", text, errs, want)
		}
	}
}
