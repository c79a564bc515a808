package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// TestThePortsFileIsOurOwn: the directory for temporary files is everybody's, who could have
// put a link there.
func TestThePortsFileIsOurOwn(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("target"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(string) error{
		"symlink":  func(path string) error { return os.Symlink(at("target"), path) },
		"dangling": func(path string) error { return os.Symlink(at("created"), path) },
		"link":     func(path string) error { return os.Link(at("target"), path) },
	} {
		if err := make(at(name)); err != nil {
			t.Fatal(err)
		}
		if file, err := openPorts(at(name)); err == nil {
			file.Close()
			t.Errorf("a %s is taken", name)
		}
	}
	if _, err := os.Lstat(at("created")); err == nil {
		t.Error("a file was made where a link leads")
	}
	for range 2 { // also once it is there
		file, err := openPorts(at("own"))
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
}
