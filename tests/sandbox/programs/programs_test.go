package programs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// nothing is the PATH of a machine that has no programs.
func nothing(string) (string, error) { return "", exec.ErrNotFound }

// Each program is found where systems' packages put it and nowhere on a machine that has none, and its
// error says how to get it.
func TestEachProgramOnAMachineThatHasItAndOnOneThatHasNone(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("ISTHMUS_TEST_PROGRAMS", "")
	t.Setenv("PATH", t.TempDir())
	seen := map[string]bool{}
	for _, p := range All {
		if seen[p.Name] {
			t.Errorf("%s stands twice", p.Name)
		}
		seen[p.Name] = true
		kinds := 0
		for _, is := range []bool{p.Source != nil, p.Packed != nil, p.Locked} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			t.Errorf("%s is had in %d ways", p.Name, kinds)
		}
		if path, ok := p.Installed(t.TempDir(), nothing); ok {
			t.Errorf("%s is at %s on a machine that has none", p.Name, path)
		}
		if _, err := Find(p.Name); err == nil {
			if p.Packed == nil {
				t.Errorf("%s is found outside of this repository", p.Name)
			}
		} else if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), Variable(p.Name)) || !strings.HasSuffix(err.Error(), p.Remedy()) {
			t.Errorf("%s: %v; want how to get it: %s", p.Name, err, p.Remedy())
		}
		if p.Packed == nil {
			continue
		}
		if len(p.Packed.Debian) == 0 || p.Packed.Probe == "" {
			t.Errorf("%s has no package, or nothing that it says", p.Name)
		}
		for _, pattern := range p.Packed.Directories {
			for _, name := range append([]string{p.Name}, p.Packed.Names...) {
				root := t.TempDir()
				older := filepath.Join(root, strings.ReplaceAll(pattern, "*", "15"), name)
				newer := filepath.Join(root, strings.ReplaceAll(pattern, "*", "17"), name)
				for _, path := range []string{older, newer} {
					if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o755)); err != nil {
						t.Fatal(err)
					}
				}
				if path, _ := p.Installed(root, nothing); path != newer {
					t.Errorf("%s as %s is found at %q, want it at %s", p.Name, name, path, newer)
				}
			}
		}
	}
}

// What programs are built from is pinned.
func TestTheModulesThatProgramsAreBuiltFromAreThere(t *testing.T) {
	for _, p := range All {
		file := filepath.Join("..", "..", "deps", p.Name, "package-lock.json")
		if p.Source != nil {
			file = filepath.Join("..", "..", "..", p.Source.Module, "go.mod")
		}
		text, err := os.ReadFile(file)
		switch {
		case p.Packed != nil:
		case err != nil:
			t.Errorf("%s: %v", p.Name, err)
		case p.Source != nil && !regexp.MustCompile(`(?m)^\s*(require )?`+regexp.QuoteMeta(p.Source.VersionOf)+` v`).Match(text):
			t.Errorf("%s: %s does not pin %s", p.Name, file, p.Source.VersionOf)
		}
	}
}

func TestWhoRunsWhat(t *testing.T) {
	for _, c := range []struct {
		need   Need
		system string
		has    string // of daprd, consul, haproxy, kubelet and nsd
	}{
		{Demo, "linux", "daprd"},
		{Linux, "linux", "daprd consul haproxy nsd"},
		{Linux, "darwin", "daprd consul nsd"},
		{Clusters, "linux", "daprd consul kubelet haproxy nsd"},
	} {
		var has []string
		for _, p := range For(c.need, c.system) {
			if slices.Contains([]string{"daprd", "consul", "haproxy", "kubelet", "nsd"}, p.Name) {
				has = append(has, p.Name)
			}
		}
		if got := strings.Join(has, " "); got != c.has {
			t.Errorf("%s on %s takes %s, want %s", c.need.Target(), c.system, got, c.has)
		}
	}
}
