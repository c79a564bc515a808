package resolverservice

import (
	"context"
	"log/slog"
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
