package process

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatCannotBeLockedKeepsNobodyOut(t *testing.T) {
	dir := DataDir{Path: filepath.Join(t.TempDir(), "data"), Cluster: strings.Repeat("w", 300)} // no file can have that name
	var said bytes.Buffer
	release, err := dir.Hold(slog.New(slog.NewTextHandler(&said, nil)))
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
