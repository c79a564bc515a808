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

// pkg is how a program that is not built from source is had. A table in .ci/servers says
// the same to make deps.
type pkg struct {
	debian, homebrew string // packages; homebrew is empty where it has none

	// directories are where the packages of systems put it, besides PATH; the newest version
	// comes last.
	directories []string
}

// known are the servers and tools that users have. Nothing else is looked for outside of
// this repository: a daprd on the PATH has no Isthmus in it.
var known = map[string]pkg{
	"redis-server": {"redis-server", "redis", systemDirectories},
	"postgres":     {"postgresql", "postgresql", postgresDirectories},
	"initdb":       {"postgresql", "postgresql", postgresDirectories},
	"dig":          {"bind9-dnsutils", "bind", systemDirectories},
	"kdig":         {"knot-dnsutils", "knot", systemDirectories},
	"drill":        {"ldnsutils", "ldns", systemDirectories},
	"unbound":      {"unbound", "unbound", systemDirectories},
	"musl-gcc":     {"musl-tools", "", systemDirectories},
	"node":         {"nodejs", "node", systemDirectories},
	"openssl":      {"openssl", "openssl", systemDirectories},
	"java":         {"default-jdk-headless", "openjdk", javaDirectories},
	"javac":        {"default-jdk-headless", "openjdk", javaDirectories},
	"containerd":   {"containerd", "", systemDirectories},
	"ctr":          {"containerd", "", systemDirectories},
	"runc":         {"runc", "", systemDirectories},
	"prometheus":   {"prometheus", "", systemDirectories},
	"promtool":     {"prometheus", "", systemDirectories},
	"chromium":     {"chromium", "google-chrome", slices.Concat(systemDirectories, []string{"/Applications/Google Chrome.app/Contents/MacOS"})},
	"haproxy":      {"haproxy", "haproxy", systemDirectories},
	"dnsperf":      {"dnsperf", "dnsperf", systemDirectories},
	"knotd":        {"knot", "knot", systemDirectories},
	"nsd":          {"nsd", "nsd", systemDirectories},

	"containerd-shim-runc-v2": {"containerd", "", systemDirectories},

	"ptp":        {"containernetworking-plugins", "", cniDirectories},
	"host-local": {"containernetworking-plugins", "", cniDirectories},
	"loopback":   {"containernetworking-plugins", "", cniDirectories},
	"nft":        {"nftables", "", systemDirectories},
	"ip":         {"iproute2", "", systemDirectories},
}

// otherNames are those that a server has on some systems.
var otherNames = map[string][]string{
	"chromium": {"google-chrome", "google-chrome-stable", "chromium-browser", "Google Chrome"},
}

// ofNodes are those that whole clusters of Kubernetes take besides, to run pods.
var ofNodes = []string{"injector", "kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager", "ptp", "host-local", "loopback", "nft", "ip"}

var (
	systemDirectories   = []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin", "/opt/homebrew/sbin"}
	postgresDirectories = []string{"/usr/pgsql-*/bin", "/usr/local/opt/postgresql*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/lib/postgresql/*/bin"}
	cniDirectories      = []string{"/opt/cni/bin", "/usr/libexec/cni", "/usr/lib/cni"}
	javaDirectories     = []string{"/usr/local/opt/openjdk*/bin", "/opt/homebrew/opt/openjdk*/bin", "/usr/lib/jvm/*/bin"}
)

// Binary finds daprd, sentry, isthmus, a server or a tool: where the environment variable
// ISTHMUS_<NAME> says (ISTHMUS_KUBE_APISERVER for kube-apiserver), else in bin/ of this
// repository or of a directory above the current one, else beside this program. What systems have packages of, such
// as PostgreSQL or dig, may also be on the PATH, or where the packages put it.
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
	if path, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(path), name); executable(path) {
			return path, nil
		}
	}
	if path, ok := installed(name); ok {
		return path, nil
	}
	return "", fmt.Errorf("%s: %w in bin/, beside this program nor by %s; %s", name, ErrNoBinary, variable, remedy(name))
}

// installed finds a server that the system has.
func installed(name string) (string, bool) {
	p, ok := known[name]
	if !ok {
		return "", false
	}
	names := append([]string{name}, otherNames[name]...)
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	for _, pattern := range slices.Backward(p.directories) {
		for _, name := range names {
			found, _ := filepath.Glob(filepath.Join(pattern, name)) // the patterns are good ones
			for _, path := range slices.Backward(found) {
				if executable(path) {
					return path, true
				}
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
	case "daprd", "sentry":
		return "build it in a clone of Isthmus: make deps-demo"
	}
	target := "make deps"
	if slices.Contains(ofNodes, name) {
		target = "make deps-install"
	}
	p, ok := known[name]
	switch {
	case !ok:
		return "build it with: " + target
	case p.homebrew == "":
		return "get it with: " + target + ", or install it: apt-get install " + p.debian
	default:
		return "get it with: " + target + ", or install it: apt-get install " + p.debian + ", brew install " + p.homebrew
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
