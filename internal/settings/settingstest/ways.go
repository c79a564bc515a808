// Package settingstest replaces files as people and programs do, for tests of what follows them.
package settingstest

import (
	"os"
	"path/filepath"
	"testing"
)

// Ways are those in which files in a directory are replaced, by name. Each writes the texts of some
// files; the others stay.
var Ways = map[string]func(t testing.TB, dir string, texts map[string]string){
	"written in place": func(t testing.TB, dir string, texts map[string]string) {
		for name, text := range texts {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	},
	"renamed": func(t testing.TB, dir string, texts map[string]string) {
		for name, text := range texts {
			next := filepath.Join(dir, name+".next")
			must(t, os.WriteFile(next, []byte(text), 0o600))
			must(t, os.Rename(next, filepath.Join(dir, name)))
		}
	},
	"by a swap of symlinks": swap,
}

// swap is how Kubernetes updates a mounted Secret: the files lead to ..data/<name>, and ..data to a
// directory that is never changed.
func swap(t testing.TB, dir string, texts map[string]string) {
	next, err := os.MkdirTemp(dir, "..version")
	must(t, err)
	data := filepath.Join(dir, "..data")
	old, err := os.ReadDir(data)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, f := range old {
		text, err := os.ReadFile(filepath.Join(data, f.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(next, f.Name()), text, 0o600))
	}
	for name, text := range texts {
		must(t, os.WriteFile(filepath.Join(next, name), []byte(text), 0o600))
		if link := filepath.Join(dir, name); os.Symlink(filepath.Join("..data", name), link) != nil {
			if _, err := os.Lstat(link); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, os.Symlink(filepath.Base(next), data+".next"))
	must(t, os.Rename(data+".next", data))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
