package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// program builds a small program, as isthmus and daprd are built.
func program(t *testing.T, system, architecture string, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"go.mod": "module small\n\ngo 1.26\n", "main.go": "package main\n\nimport _ \"net\"\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "small", ".")
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "small")
}

// place is a repository with what a release takes from it.
func place(t *testing.T, changes string) string {
	t.Helper()
	root := t.TempDir()
	for file, text := range map[string]string{
		"CHANGELOG.md": changes, "LICENSE": "free\n", "README.md": "# Isthmus\n", "deploy/systemd/isthmus.service": "[Unit]\n",
		"components/daprd/go.mod":         "module github.com/isthmus-mesh/isthmus/components/daprd\n\nrequire github.com/isthmus-mesh/isthmus v1.2.3-rc.1\n",
		"deploy/chart/isthmus/Chart.yaml": "name: isthmus\nversion: 0.0.0\nappVersion: 0.0.0\n", "deploy/chart/isthmus/values.yaml": "cluster: \"\"\n",
	} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const changes = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3-rc.1] - 2026-11-24\n\n### Added\n\n- Charts.\n\n## [1.2.2] - 2026-10-01\n\n- Older.\n"

func TestAReleaseIsMadeAgainFromItsCommit(t *testing.T) {
	root := place(t, changes)
	key, public := signing(t, root)
	binaries := []string{
		"isthmus=linux/amd64:" + program(t, "linux", "amd64"), "isthmus=linux/arm64:" + program(t, "linux", "arm64"),
		"isthmus=darwin/arm64:" + program(t, "darwin", "arm64"), "daprd-isthmus=linux/amd64:" + program(t, "linux", "amd64"),
	}
	made := func() string {
		out := t.TempDir()
		if err := run(append([]string{"-root", root, "-out", out, "-version", "v1.2.3-rc.1", "-commit", "abc", "-time", "1760000000", "-whole", "-key", key}, binaries...)); err != nil {
			t.Fatal(err)
		}
		return out
	}
	first, second := made(), made()
	if out, err := exec.CommandContext(t.Context(), "diff", "-r", first, second).CombinedOutput(); err != nil {
		t.Errorf("two releases of one commit differ: %s", out)
	}
	checkSigned(t, filepath.Join(first, "release"), public)
	text := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(first, "release", file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := text("NOTES.md"); got != "### Added\n\n- Charts.\n" {
		t.Errorf("the notes are %q", got)
	}
	if chart := unpacked(t, text("isthmus-1.2.3-rc.1.tgz"))["isthmus/Chart.yaml"]; !strings.Contains(chart, "\nversion: 1.2.3-rc.1\nappVersion: 1.2.3-rc.1\n") {
		t.Errorf("the chart is %q", chart)
	}
	if files := unpacked(t, text("isthmus-1.2.3-rc.1-darwin-arm64.tar.gz")); len(files["isthmus"]) < 1000 || files["LICENSE"] == "" {
		t.Errorf("the archive has %d files", len(files))
	}
	for _, file := range []string{"isthmus-1.2.3-rc.1-linux-amd64.deb", "isthmus-1.2.3-rc.1-linux-arm64.rpm"} {
		if len(text(file)) < 1000 {
			t.Errorf("%s has %d bytes", file, len(text(file)))
		}
	}
	archive := "isthmus-1.2.3-rc.1-darwin-arm64.tar.gz"
	for _, manifest := range []string{"isthmus.krew.yaml", "isthmus.rb"} {
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text(archive)))); !strings.Contains(text(manifest), sum) || !strings.Contains(text(manifest), "/releases/download/v1.2.3-rc.1/"+archive) {
			t.Errorf("%s lacks %s with its sum: %s", manifest, archive, text(manifest))
		}
	}
	var bom struct {
		Components []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(text("daprd-isthmus-1.2.3-rc.1-linux-amd64.cdx.json")), &bom); err != nil || len(bom.Components) == 0 || bom.Components[0].Name != "stdlib" {
		t.Errorf("the bill of materials: %+v, %v", bom, err)
	}
	for line := range strings.Lines(text(sums)) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(text(file)))); got != sum {
			t.Errorf("%s has the sum %s, not %s", file, got, sum)
		}
	}
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	layout, err := os.ReadFile(filepath.Join(first, "images/isthmus/index.json"))
	if err != nil || json.Unmarshal(layout, &index) != nil || len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "ghcr.io/isthmus-mesh/isthmus:1.2.3-rc.1" {
		t.Errorf("the layout is %s, %v", layout, err)
	}
}

func unpacked(t *testing.T, text string) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

func TestImagesArePushedForEachPlatform(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/mesh"
	args := []string{"-out", t.TempDir(), "-version", "v1.2.3", "-to", to,
		"isthmus=linux/amd64:" + program(t, "linux", "amd64"), "isthmus=linux/arm64:" + program(t, "linux", "arm64")}
	for range 2 { // what is there is not sent again
		if err := run(args); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := name.ParseReference(to + "/isthmus:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	image, err := index.Image(manifest.Manifests[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Architecture != "arm64" || config.Config.User != "65532:65532" || config.Config.Entrypoint[0] != "/isthmus" {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestWhatCantBeReleasedIsNamed(t *testing.T) {
	amd, arm := program(t, "linux", "amd64"), program(t, "linux", "arm64")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"is no semantic version":     {"-whole", "-version", "1.2", "isthmus=linux/amd64:" + amd},
		`"v1.2" is no semantic`:      {"-version", "v1.2", "isthmus=linux/amd64:" + amd},
		`"main" is no semantic`:      {"-whole", "-version", "main", "-check"},
		"no section \"## [1.2.4]\"":  {"-whole", "-root", place(t, changes), "-version", "v1.2.4", "-check"},
		"run make version":           {"-whole", "-root", place(t, changes), "-version", "v1.2.2", "-check"},
		"has no section":             {"-whole", "-root", place(t, "# Changelog\n"), "-version", "v1.2.3", "isthmus=linux/amd64:" + amd},
		"is no binary; write image=": {"-version", "v1.2.3", "isthmus:linux/amd64"},
		"want -version and binaries": {"-version", "v1.2.3"},
		"is for EM_AARCH64":          {"-version", "v1.2.3", "isthmus=linux/amd64:" + arm},
		"no binary of Linux":         {"-version", "v1.2.3", "isthmus=linux/amd64:" + script},
		"write a registry such as":   {"-version", "v1.2.3", "-to", "UPPER CASE", "isthmus=linux/amd64:" + amd},
		"are you logged in there":    {"-version", "v1.2.3", "-to", "127.0.0.1:1/mesh", "isthmus=linux/amd64:" + amd},
	} {
		if err := run(append([]string{"-out", t.TempDir()}, args...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// TestAVersionIsCheckedBeforeAnythingIsBuilt, by the call that .ci/release makes first.
func TestAVersionIsCheckedBeforeAnythingIsBuilt(t *testing.T) {
	for _, args := range [][]string{
		{"-whole", "-root", place(t, changes), "-version", "v1.2.3-rc.1", "-check"},
		{"-version", "4f5e6a1-dirty", "-check"}, {"-version", "v1.2.2-14-g4f5e6a1", "-check"},
	} {
		if err := run(args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	script, err := os.ReadFile("../../.ci/release")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(script), "go build")
	if !strings.Contains(before, "-check") || !strings.Contains(before, "-buildvcs=false") {
		t.Errorf("before it builds, .ci/release does this:\n%s", before)
	}
}

// TestAReleaseIsPushedOnceAllIsPacked, and again without a change.
func TestAReleaseIsPushedOnceAllIsPacked(t *testing.T) {
	var served atomic.Int64
	answers := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		answers.ServeHTTP(w, r)
	}))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/mesh"
	root, amd := place(t, changes), program(t, "linux", "amd64")
	release := func(root, time string) error {
		return run([]string{"-root", root, "-out", t.TempDir(), "-version", "v1.2.3-rc.1", "-time", time, "-whole", "-to", to, "isthmus=linux/amd64:" + amd})
	}
	unfinished := place(t, changes)
	if err := os.Remove(filepath.Join(unfinished, "LICENSE")); err != nil {
		t.Fatal(err)
	}
	if err := release(unfinished, "1760000000"); err == nil || served.Load() > 0 {
		t.Fatalf("a release that can't be packed: %v, and the registry was asked %d times", err, served.Load())
	}
	for range 2 {
		if err := release(root, "1760000000"); err != nil {
			t.Fatal(err)
		}
	}
	if err := release(root, "1770000000"); err == nil || !strings.Contains(err.Error(), "a release never changes; raise the version") {
		t.Errorf("another release with the same version: %v", err)
	}
	helm, err := filepath.Abs("../../bin/helm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(helm); err != nil {
		t.Skip("needs bin/helm to pull the chart: make helm")
	}
	out, err := exec.CommandContext(t.Context(), helm, "show", "chart", "oci://"+to+"/charts/isthmus", "--version", "1.2.3-rc.1", "--plain-http").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "appVersion: 1.2.3-rc.1") {
		t.Errorf("helm show chart: %v: %s", err, out)
	}
}

// TestTheBillOfMaterialsNamesTheModuleOfThisRepository, which daprd has from a directory.
func TestTheBillOfMaterialsNamesTheModuleOfThisRepository(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":         "module small/daprd\n\ngo 1.26\n\nrequire example.com/isthmus v0.0.0\n\nreplace example.com/isthmus => ./isthmus\n",
		"main.go":        "package main\n\nimport _ \"example.com/isthmus\"\n\nfunc main() {}\n",
		"isthmus/go.mod": "module example.com/isthmus\n\ngo 1.26\n", "isthmus/a.go": "package isthmus\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "small", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out := t.TempDir()
	if err := run([]string{"-root", place(t, changes), "-out", out, "-version", "v1.2.3-rc.1", "-whole", "daprd-isthmus=linux/amd64:" + filepath.Join(dir, "small")}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "release", "daprd-isthmus-1.2.3-rc.1-linux-amd64.cdx.json"))
	if err != nil || !strings.Contains(string(text), `"pkg:golang/example.com/isthmus@v1.2.3-rc.1"`) || strings.Contains(string(text), "./isthmus") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestABinaryThatNeedsLibrariesIsRefused(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs a C compiler")
	}
	file := program(t, "linux", "amd64", "CGO_ENABLED=1")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte("ld-linux")) {
		t.Skip("the machine's Go links without libraries")
	}
	if err := run([]string{"-out", t.TempDir(), "-version", "v1.2.3", "isthmus=linux/amd64:" + file}); err == nil || !strings.Contains(err.Error(), "build it with CGO_ENABLED=0") {
		t.Errorf("%v", err)
	}
}
