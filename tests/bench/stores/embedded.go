package main

import (
	"context"
	"path/filepath"
)

// startEmbedded: one process has the file, so all goes through the service.
func startEmbedded(_ context.Context, dir string) (*subject, error) {
	settings := map[string]any{"embedded": map[string]any{"path": filepath.Join(dir, "isthmus.db")}}
	return &subject{settings: settings, fill: filler(dir, settings, 10_000, 1), close: func() error { return nil }}, nil
}
