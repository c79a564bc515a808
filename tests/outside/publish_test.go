// Package outside tests Isthmus as somebody outside has it: by its modules as a proxy serves them,
// in programs of their own.
package outside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if published.remove != nil {
		if err := published.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(meshtest.Leaks(code))
}

const (
	isthmus = "github.com/isthmus-mesh/isthmus"
	daprd   = "components/daprd" // the module below it
)

// published is a release of this tree: both its modules, at a proxy for modules.
var published struct {
	sync.Mutex
	version string
	proxy   string // its URL
	remove  func() error
}

// publish releases this tree, as docs/how-to/release.md tells, once for all tests. Its version is one
// of the tree alone, so that Go's cache never has another tree for it.
func publish(t *testing.T) {
	t.Helper()
	programstest.World(t, "isthmus")
	if strings.TrimSpace(run(t, "..", nil, "go", "env", "GOPROXY")) == "off" {
		t.Skip("GOPROXY=off: somebody outside asks a proxy for modules")
	}
	published.Lock()
	defer published.Unlock()
	if published.proxy != "" {
		return
	}
	dir, err := os.MkdirTemp("", "isthmus-outside-")
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(run(t, "..", nil, "go", "env", "GOMODCACHE"))
	published.remove = func() error {
		errs := []error{os.RemoveAll(dir)}
		for _, pattern := range []string{isthmus + "@%s", isthmus + "/" + daprd + "@%s", "cache/download/" + isthmus + "/@v/%s.*", "cache/download/" + isthmus + "/" + daprd + "/@v/%s.*"} {
			found, _ := filepath.Glob(filepath.Join(cache, fmt.Sprintf(pattern, published.version))) // no bad pattern
			for _, path := range found {
				errs = append(errs, os.RemoveAll(path))
			}
		}
		return errors.Join(errs...)
	}
	tree, proxy := filepath.Join(dir, "tree"), filepath.Join(dir, "proxy")
	copyTree(t, tree)
	git := func(args ...string) string {
		return run(t, tree, nil, "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgSign=false"}, args...)...)
	}
	git("init", "--quiet")
	git("add", "--all", "--force")
	published.version = "v1.0.0-test.g" + strings.TrimSpace(git("write-tree"))[:12]
	run(t, tree, []string{"GOFLAGS=-mod=mod", "MAKEFLAGS="}, "make", "--no-print-directory", "version", "VERSION="+published.version)
	git("add", "--all", "--force")
	git("commit", "--quiet", "--message", "a release")
	for _, below := range []string{"", daprd} {
		path, tag := isthmus, published.version
		if below != "" {
			path, tag = path+"/"+below, below+"/"+tag
		}
		git("tag", tag)
		serve(t, proxy, tree, module.Version{Path: path, Version: published.version}, tag, below)
	}
	published.proxy = "file://" + proxy
}

// copyTree copies what git has of this tree, or would have.
func copyTree(t *testing.T, to string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.SplitSeq(run(t, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, file))
		if file == "" || errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() { // deleted and not committed, or a link
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, file)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// serve puts a module, as it is at a tag, where a proxy has it.
func serve(t *testing.T, proxy, repository string, m module.Version, tag, below string) {
	t.Helper()
	dir := filepath.Join(proxy, m.Path, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, m.Version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	info, _ := json.Marshal(map[string]string{"Version": m.Version})
	if err := errors.Join(
		zip.CreateFromVCS(f, m, repository, tag, below), f.Close(),
		os.WriteFile(filepath.Join(dir, m.Version+".info"), info, 0o600),
		os.WriteFile(filepath.Join(dir, m.Version+".mod"), []byte(run(t, repository, nil, "git", "show", tag+":"+filepath.Join(below, "go.mod"))), 0o600),
		os.WriteFile(filepath.Join(dir, "list"), []byte(m.Version+"\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
}

// run runs a program and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// outsider is a module of somebody who has no clone of this one.
type outsider struct {
	t   *testing.T
	dir string
	env []string
}

// newOutsider has the program in main.go.
func newOutsider(t *testing.T, program string) *outsider {
	t.Helper()
	publish(t)
	o := &outsider{t, t.TempDir(), []string{
		"GOPROXY=" + published.proxy + "," + strings.TrimSpace(run(t, "..", nil, "go", "env", "GOPROXY")), "GONOSUMDB=" + isthmus,
		"GOFLAGS=-trimpath -buildvcs=false -modcacherw", "CGO_ENABLED=0",
	}}
	o.write("main.go", program)
	o.go_("mod", "init", "example.com/outside")
	return o
}

func (o *outsider) write(file, text string) {
	o.t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, file), []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outsider) read(file string) string {
	o.t.Helper()
	text, err := os.ReadFile(filepath.Join(o.dir, file))
	if err != nil {
		o.t.Fatal(err)
	}
	return string(text)
}

func (o *outsider) go_(args ...string) string {
	o.t.Helper()
	return run(o.t, o.dir, o.env, "go", args...)
}

// modules are those that lines of go.mod or go.sum name, without this one's.
func modules(text string) (all []string) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(strings.TrimPrefix(line, "require ")); len(fields) > 1 && strings.HasPrefix(fields[1], "v") && !strings.HasPrefix(fields[0], isthmus) {
			all = append(all, fields[0])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
