package resolverservice

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore/file"
)

func TestNoServiceWritesOverWhatAnotherOneKeeps(t *testing.T) {
	files := t.TempDir()
	configure := func() *Config {
		cfg := configOf(t, "west", nil)
		cfg.Store.Embedded, cfg.Store.File = nil, &file.Config{Path: files}
		return cfg
	}
	first := start(t, configure(), nil)
	second := configure()
	second.DataDir = first.cfg.DataDir
	ctx, cancel := context.WithTimeout(t.Context(), patience) // for a service that would run
	defer cancel()
	err := Run(ctx, second, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if want := "dataDir: " + second.DataDir + ": another service of cluster west has held it"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("error %v; want %s …", err, want)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	start(t, second, nil) // it is free again
}

func TestWhatCannotBeLockedKeepsNobodyOut(t *testing.T) {
	cfg := &Config{DataDir: filepath.Join(t.TempDir(), "data"), Cluster: strings.Repeat("w", 300)} // no file can have that name
	var said bytes.Buffer
	release, err := cfg.holdDataDir(slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "dataDir can't be locked") || !strings.Contains(said.String(), "file name too long") {
		t.Errorf("the log says %q", said.String())
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
