package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoBinary is returned, wrapped, when a binary that a sandbox runs is not built.
var ErrNoBinary = errors.New("binary not found")

// known says where the packages of systems put the servers that users have, besides PATH.
// The newest version comes last. Nothing else is looked for outside of this repository:
// a daprd on the PATH has no Isthmus in it.
var known = map[string][]string{
	"redis-server": {"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"},
	"postgres":     postgresDirectories,
	"initdb":       postgresDirectories,
}

var postgresDirectories = []string{"/usr/pgsql-*/bin", "/usr/local/opt/postgresql*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/lib/postgresql/*/bin"}

// Binary finds daprd, sentry, isthmus or a server: where the environment variable
// ISTHMUS_<NAME> says (ISTHMUS_KUBE_APISERVER for kube-apiserver), else in bin/ of this
// repository or of a directory above the current one. Redis and PostgreSQL may also be on
// the PATH, or where the system's packages put them.
func Binary(name string) (string, error) {
	variable := "ISTHMUS_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
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
	if path, ok := installed(name); ok {
		return path, nil
	}
	return "", fmt.Errorf("%s: %w in bin/ nor by %s; %s", name, ErrNoBinary, variable, remedy(name))
}

// installed finds a server that the system has.
func installed(name string) (string, bool) {
	directories, ok := known[name]
	if !ok {
		return "", false
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, true
	}
	for _, pattern := range slices.Backward(directories) {
		found, _ := filepath.Glob(filepath.Join(pattern, name)) // the patterns are good ones
		for _, path := range slices.Backward(found) {
			if executable(path) {
				return path, true
			}
		}
	}
	return "", false
}

// remedy says how a binary is had.
func remedy(name string) string {
	switch name {
	case "isthmus":
		return "build it with: make build"
	case "redis-server":
		return "get it with: make deps, or install it: apt-get install redis-server, brew install redis"
	case "postgres", "initdb":
		return "get it with: make deps, or install it: apt-get install postgresql, brew install postgresql"
	case "daprd", "sentry":
		return "build it with: make deps-demo"
	default:
		return "build it with: make deps"
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
