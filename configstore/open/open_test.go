package open

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

var quiet = slog.New(slog.DiscardHandler)

func TestStoresThatAConfigurationNames(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"embedded": "{embedded: {path: " + filepath.Join(dir, "isthmus.db") + "}}",
		"file":     "{file: {path: " + dir + "}}",
	} {
		t.Run(name, func(t *testing.T) {
			var c Config
			if err := yaml.Unmarshal([]byte(text), &c); err != nil {
				t.Fatal(err)
			}
			s, err := Open(c, configstore.Scope{}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Get(t.Context(), catalog.Key{Kind: catalog.KindCluster, Name: "east"}); !errors.Is(err, configstore.ErrNotFound) {
				t.Errorf("get from the empty store: %v, want ErrNotFound", err)
			}
		})
	}
}

func TestConfigurationsThatNameNone(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name   string
		config Config
		want   string
	}{
		{"none", Config{}, "store: names 0 kinds of store (); want one of embedded, file"},
		{"two", Config{"file": map[string]any{"path": dir}, "embedded": map[string]any{"path": dir}}, "names 2 kinds of store (embedded, file)"},
		{"a misspelt kind", Config{"files": map[string]any{"path": dir}}, `unknown kind "files"; did you mean "file"?`},
		{"another kind", Config{"zookeeper": nil}, `unknown kind "zookeeper"; want one of embedded, file`},
		{"a misspelt setting", Config{"file": map[string]any{"pth": dir}}, `store.file.pth: unknown field; did you mean "path"?`},
		{"no path", Config{"embedded": nil}, "store.embedded.path: is missing; give it a value"},
		{"a number for a path", Config{"embedded": map[string]any{"path": 7}}, "store.embedded.path: 7 is a whole number where a text is wanted"},
		{"a path that can't be", Config{"embedded": map[string]any{"path": dir}}, "store.embedded: store embedded: open " + dir},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open(c.config, configstore.Scope{}, quiet)
			if err == nil || !strings.Contains(err.Error(), c.want) || s != nil {
				t.Errorf("store %v, error %v; want none, and %q", s, err, c.want)
			}
		})
	}
}

func TestAKindThatTheProgramBrings(t *testing.T) {
	type settings struct {
		URL string `json:"url"`
	}
	mine := errors.New("opened")
	kind := Of("mine", func(c settings, scope configstore.Scope, _ *slog.Logger) (configstore.ReadWriter, error) {
		if c.URL != "there" || scope.App.ID != "checkout" {
			t.Errorf("settings %+v, scope %v; want what was given", c, scope)
		}
		return nil, mine
	})
	scope := configstore.Scope{App: catalog.App{Namespace: "shop", ID: "checkout"}}
	if _, err := Open(Config{"mine": map[string]any{"url": "there"}}, scope, quiet, kind); !errors.Is(err, mine) {
		t.Errorf("error %v, want that of the kind", err)
	}
}
