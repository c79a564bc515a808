package resolverservice

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/resolver-service/strictyaml"
)

func storeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheStoreOfAFile(t *testing.T) {
	for _, c := range []struct{ what, text, name, path string }{
		{"a whole isthmus.yaml", "cluster: west\nidentity: {insecure: true}\nstore: {file: {path: config}}\n", "file", "config"},
		{"one that leaves its store out", "cluster: west\ndataDir: there\n", "embedded", "there/isthmus.db"},
		{"a store alone", "store: {embedded: {path: a.db}}\n", "embedded", "a.db"},
		{"a store alone, at its default", "store: {embedded: {}}\n", "embedded", "data/isthmus.db"},
	} {
		s, err := LoadStore(storeFile(t, c.text))
		if err != nil || s.Name() != c.name {
			t.Errorf("%s: %q, %v; want %s", c.what, s.Name(), err, c.name)
			continue
		}
		if s.Embedded != nil && s.Embedded.Path != c.path || s.File != nil && s.File.Path != c.path {
			t.Errorf("%s: %+v; want the path %s", c.what, s, c.path)
		}
	}
	for text, want := range map[string]string{
		"":                              ":1:1: store: is missing; name the store",
		"identity: {insecure: true}\n":  ":1:1: store: is missing; name the store",
		"stor: {file: {path: a}}\n":     `:1:1: stor: unknown field; did you mean "store"?`,
		"store: {flie: {path: a}}\n":    `:1:9: store.flie: unknown field; did you mean "file"?`,
		"store: {file: {}}\n":           ":1:15: store.file.path: is missing; name the directory",
		"store: {file: {path: [a]}}\n":  ":1:22: store.file.path: is a list where one value is wanted",
		"store: {file: {path: a}, x: 1": "not YAML",
	} {
		if _, err := LoadStore(storeFile(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	if _, err := LoadStore(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), `name an isthmus.yaml, or a file with only its "store"`) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestAStoreThatFailsToOpenIsNone(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	if s, err := (Store{}).Open(configstore.Scope{}, quiet); err == nil || s != nil {
		t.Errorf("no kind: %v, %v", s, err)
	}
	if s, err := (Store{File: &file.Config{}}).Open(configstore.Scope{}, quiet); err == nil || s != nil {
		t.Errorf("no path: %v, %v", s, err)
	}
}

// What a backend's own check finds has the place of its key.
func TestAMistakeThatABackendFindsHasItsPlace(t *testing.T) {
	cfg := &Config{}
	doc := strictyaml.Decode("isthmus.yaml", []byte("store:\n  file:\n    path: a\n"), cfg)
	refuseBelow(doc, "store.file", errors.Join(
		errors.New("path: is no directory; name one"),
		fmt.Errorf("it is Tuesday: come back; on Wednesday"),
	))
	want := "isthmus.yaml:3:11: store.file.path: is no directory; name one\nisthmus.yaml:3:5: store.file: it is Tuesday: come back; on Wednesday"
	if err := doc.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
