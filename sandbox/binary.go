package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoBinary is returned, wrapped, when a binary that a sandbox runs is not built.
var ErrNoBinary = errors.New("binary not found")

// Binary finds daprd, sentry or isthmus: where the environment variable ISTHMUS_<NAME>
// says, else in bin/ of this repository or of a directory above the current one.
func Binary(name string) (string, error) {
	variable := "ISTHMUS_" + strings.ToUpper(name)
	if path := os.Getenv(variable); path != "" {
		if !executable(path) {
			return "", fmt.Errorf("%s=%s: %w or not executable", variable, path, ErrNoBinary)
		}
		return filepath.Abs(path)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	for {
		if path := filepath.Join(dir, "bin", name); executable(path) && exists(filepath.Join(dir, "go.mod")) {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return "", fmt.Errorf("%s: %w in bin/ nor by %s; build it with: make %s", name, ErrNoBinary, variable, target(name))
}

// target is the make target that builds a binary.
func target(name string) string {
	if name == "isthmus" {
		return "build"
	}
	return "deps"
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
