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
	"github.com/isthmus-mesh/isthmus/internal/strict"
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
		from := storeFile(t, c.text)
		s, err := LoadStore(from)
		c.path = filepath.Join(filepath.Dir(from), c.path)
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

func TestAMistakeInTheSettingsOfAStoreHasItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"store: {consul: {}, etcd: {}, dapr: {}}":                                   ":1:8: store: consul and etcd and dapr exclude each other; keep one of them",
		"store: {consul: {adress: a}}":                                              `:1:18: store.consul.adress: unknown field; did you mean "address"?`,
		"store: {consul: {address: a}}":                                             ":1:27: store.consul.address: ",
		"store: {consul: {token: {}}}":                                              ":1:25: store.consul.token: does not say where the secret is",
		"store: {consul: {token: hunter2}}":                                         ":1:25: store.consul.token: a secret does not stand here itself; write where it is",
		"store: {consul: {prefix: /a}}":                                             ":1:26: store.consul.prefix: ",
		"store:\n  consul:\n    address: https://a\n    tls: {cert: a}":             ":4:10: store.consul.tls: cert and key go together; name both files or none",
		"store:\n  consul:\n    address: https://a\n    tls: {ca: /nowhere/ca.pem}": ":4:10: store.consul.tls: ca: open /nowhere/ca.pem: no such file",
		"store: {etcd: {}}":                                                         ":1:15: store.etcd.endpoints: is missing; name one member or more",
		"store: {etcd: {endpoints: a}}":                                             ":1:27: store.etcd.endpoints: is \"a\" where a list is wanted",
		"store: {etcd: {endpoints: [a]}}":                                           ":1:28: store.etcd.endpoints[0]: \"a\": want host:port",
		"store: {etcd: {endpoints: [a:1], username: me}}":                           ":1:15: store.etcd: username and password go together; name both or none",
		"store: {etcd: {endpoints: [a:1], timeout: soon}}":                          ":1:43: store.etcd.timeout: \"soon\" does not fit; write a length of time",
		"store: {kubernetes: {kubeconfig: /nowhere/config}}":                        ":1:34: store.kubernetes.kubeconfig: /nowhere/config: ",
		"store: {kubernetes: {status: maybe, kubeconfig: a}}":                       ":1:30: store.kubernetes.status: \"maybe\" does not fit; write true or false",
		"store: {dapr: {}}":                                                         ":1:15: store.dapr.component: is missing; give the file of a Dapr configuration store",
		"store: {dapr: {component: /nowhere/redis.yaml}}":                           "/nowhere/redis.yaml",
		"store: {dapr: {component: a, prefix: 'a b'}}":                              ":1:38: store.dapr.prefix: ",
	} {
		_, err := LoadStore(storeFile(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v\nwant one line with %s", text, err, want)
		}
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
	doc := strict.Decode("isthmus.yaml", []byte("store:\n  file:\n    path: a\n"), cfg)
	doc.Merge("store.file", fmt.Errorf("store file: %w", strict.Errors{{Path: "path", What: "is no directory", Fix: "name one"}}))
	doc.Merge("store.file", errors.New("it is Tuesday: come back; on Wednesday"))
	want := "isthmus.yaml:3:5: store.file: it is Tuesday: come back; on Wednesday\nisthmus.yaml:3:11: store.file.path: is no directory; name one"
	if err := doc.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
