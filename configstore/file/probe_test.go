package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
)

func TestADirectoryThatMayNotBeWrittenIsToldWithoutAWrite(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	err := s.MayWrite(t.Context())
	if os.Getuid() != 0 && !errors.Is(err, configstore.ErrReadOnly) {
		t.Errorf("MayWrite: %v, want ErrReadOnly", err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) > 0 {
		t.Errorf("it made %v", names)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.MayWrite(t.Context()); err == nil || !strings.Contains(err.Error(), "store file: write to "+dir) {
		t.Errorf("MayWrite to a directory that is not there: %v", err)
	}
	if _, err := s.Server(t.Context()); err == nil {
		t.Error("a directory that is not there answers")
	}
}
