package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNone is returned, wrapped, for a program that is not there.
var ErrNone = errors.New("binary not found")

// Find finds a program: where [Variable] says, else in bin/ of this repository or of a directory
// above the current one, else beside this program. One that systems have a package of, such as
// PostgreSQL or dig, may also be on the PATH, or where the package puts it; a daprd on the PATH has
// no Isthmus in it. Where ISTHMUS_TEST_PROGRAMS is "demo", those of the table that the demo does
// not run are not there.
func Find(name string) (string, error) {
	p, known := Named(name)
	if known && p.Need > Demo && os.Getenv("ISTHMUS_TEST_PROGRAMS") == "demo" {
		return "", fmt.Errorf("%s: %w among those of the demo, to which ISTHMUS_TEST_PROGRAMS limits this run; %s runs it", name, ErrNone, p.Need.Runs())
	}
	variable := Variable(name)
	if path := os.Getenv(variable); path != "" {
		if !Executable(path) {
			return "", fmt.Errorf("%s=%s: %w or not executable", variable, path, ErrNone)
		}
		return filepath.Abs(path)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	for {
		if path := filepath.Join(dir, "bin", name); Executable(path) && exists(filepath.Join(dir, "go.mod")) {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	if path, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(path), name); Executable(path) {
			return path, nil
		}
	}
	remedy := "build it with: make build"
	if known {
		if path, ok := p.Installed("/", exec.LookPath); ok {
			return path, nil
		}
		remedy = p.Remedy()
	}
	return "", fmt.Errorf("%s: %w in bin/, beside this program nor by %s; %s", name, ErrNone, variable, remedy)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
