package dapr

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestMain has an authority among the system's roots, which is the one way to have Dapr's
// Redis store trust another, and waits for what a server that was cut off holds up after
// Close.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "isthmus-dapr-")
	if err == nil {
		var ca string
		trusted.cert, trusted.key, ca, err = writeAuthority(dir)
		os.Setenv("SSL_CERT_FILE", ca)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	result := m.Run()
	os.RemoveAll(dir)
	var leak error
	for end := time.Now().Add(testPatience); result == 0 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if leak = goleak.Find(); leak == nil {
			break
		}
	}
	if leak != nil {
		fmt.Fprintln(os.Stderr, leak)
		result = 1
	}
	os.Exit(result)
}

// prefixes is how many backends have had a prefix of their own.
var prefixes atomic.Int64

func newPrefix() string { return fmt.Sprintf("t%d/", prefixes.Add(1)) }

// yamlOf is a component's YAML, in a file of its own.
func yamlOf(t testing.TB, kind string, settings map[string]string) string {
	t.Helper()
	text := "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata:\n  name: config\nspec:\n  type: " + kind + "\n  version: v1\n  metadata:\n"
	for name, value := range settings {
		text += fmt.Sprintf("  - name: %s\n    value: %q\n", name, value)
	}
	file := filepath.Join(t.TempDir(), "component.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func openStore(t testing.TB, c Config, scope configstore.Scope) *Store {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("ISTHMUS_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	s, err := Open(c, scope, log)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// copyAll copies a directory with its owners, as a backup of a server's data.
func copyAll(t testing.TB, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

// backup copies the data of a server, which a stopped or a running one can be put back to.
func backup(t testing.TB, s serverstest.Server, data string) (restore func()) {
	t.Helper()
	kept := filepath.Join(t.TempDir(), "backup")
	copyAll(t, data, kept)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		copyAll(t, kept, data)
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// authority makes a server's certificate, in files, of an authority that nobody knows.
func authority(t testing.TB) (cert, key, ca string) {
	t.Helper()
	cert, key, ca, err := writeAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, ca
}

func writeAuthority(dir string) (cert, key, ca string, err error) {
	a, err := sandbox.NewAuthority()
	if err != nil {
		return "", "", "", err
	}
	c, k, err := a.Server("127.0.0.1", "localhost")
	if err != nil {
		return "", "", "", err
	}
	cert, key, ca = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	for path, text := range map[string][]byte{cert: c, key: k, ca: a.Anchors()} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", "", "", err
		}
	}
	return cert, key, ca, nil
}

const testPatience = time.Minute

// startLimit is how long the servers of a test may take to start and to end, all in all.
const startLimit = 5 * time.Minute
