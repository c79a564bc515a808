package clusters

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// nobody runs in every image. Dapr's chart wants a user who is not root, and says not who.
const nobody = "65532:65532"

// pack writes an image of one binary, as "docker save" does, and returns its file. The images that are
// published are made by tools/release; these are of parts that others publish, and of the tests' app.
func pack(t *testing.T, name, binary string, entrypoint ...string) string {
	t.Helper()
	text, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	layer := tarOf(t, map[string][]byte{filepath.Base(binary): text})
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"User": nobody, "Entrypoint": entrypoint, "Env": []string{"PATH=/"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(archive, tarOf(t, map[string][]byte{"manifest.json": manifest, "config.json": config, "layer.tar": layer}), 0o600); err != nil {
		t.Fatal(err)
	}
	return archive
}

func tarOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// compile builds a program of ours without libraries, which no image has.
func compile(t *testing.T, pkg string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(meshtest.Within(t, patience), "go", "build", "-trimpath", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", pkg, err, out)
	}
	return binary
}

// binary finds a program that an image is made of.
func binary(t *testing.T, name string) string {
	t.Helper()
	path := programstest.Path(t, name)
	return path
}
