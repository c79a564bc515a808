package resolverservice

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Paths of isthmus.yaml are relative to it, those of its parts too.
func TestPathsAreRelativeToTheConfiguration(t *testing.T) {
	cfg, err := Parse("etc/west/isthmus.yaml", []byte(`
cluster: west
identity: {sentry: {address: "127.0.0.1:50001", trustAnchorsFile: ../ca.crt, tokenFile: /run/token}}
tracing: {otlp: {endpoint: "127.0.0.1:4317", headersFile: headers}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		cfg.DataDir:                          "etc/west/data",
		cfg.Store.Embedded.Path:              "etc/west/data/isthmus.db",
		cfg.Identity.Sentry.TrustAnchorsFile: "etc/ca.crt",
		cfg.Identity.Sentry.TokenFile:        "/run/token",
		cfg.Tracing.OTLP.HeadersFile:         "etc/west/headers",
	} {
		if got != filepath.FromSlash(want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	path := filepath.Join(t.TempDir(), "store.yaml")
	if err := os.WriteFile(path, []byte("store: {file: {path: objects}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := LoadStore(path)
	if want := filepath.Join(filepath.Dir(path), "objects"); err != nil || store.File.Path != want || store.Path() != want {
		t.Errorf("got %+v, %v; want %s", store.File, err, want)
	}
}

func TestANewStoreIsAnnounced(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd() // without symbolic links, as the service has it
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("west", 0o700); err != nil {
		t.Fatal(err)
	}
	cfg, err := Parse("west/isthmus.yaml", []byte("cluster: west\nidentity: {insecure: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	announce := func() (string, error) {
		var log bytes.Buffer
		err := cfg.announceNewStore(slog.New(slog.NewTextHandler(&log, nil)))
		return log.String(), err
	}
	log, err := announce()
	if path := filepath.Join(here, "west", "data", "isthmus.db"); err != nil || !strings.Contains(log, "level=WARN") || !strings.Contains(log, path) {
		t.Errorf("said %q, %v; want a warning of %s", log, err, path)
	}

	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	former := filepath.Join(here, "data", "isthmus.db")
	write(former)
	if log, err = announce(); err == nil || !strings.Contains(err.Error(), "there is "+former) || log != "" {
		t.Errorf("beside a store where the path led before: said %q, %v", log, err)
	}
	write(filepath.Join("west", "data", "isthmus.db"))
	if log, err = announce(); err != nil || log != "" {
		t.Errorf("of a store that is there: said %q, %v", log, err)
	}
}
