package main

import (
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/kit/logger"
	"github.com/santhosh-tekuri/jsonschema/v5"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/upstream/isthmus"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// The patch is laid over the source of components-contrib, whose go.mod it leaves as it is. There it
// must build, and pass its unit tests and the conformance suite.
func TestThePatch(t *testing.T) {
	programstest.World(t, "isthmus")
	patch, contribDir := t.TempDir(), t.TempDir()
	if err := assemble("..", patch); err != nil {
		t.Fatal(err)
	}
	stock, err := source("..", "github.com/dapr/components-contrib")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{stock, filepath.Join(patch, "components-contrib")} {
		if err := overlay(contribDir, from); err != nil {
			t.Fatal(err)
		}
	}
	checkMetadata(t, contribDir)

	s, err := sandbox.New(t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	service, err := s.Service(t.Context(), sandbox.ServiceOptions{Cluster: "west", Gateway: sandbox.NoGateway})
	programstest.OrSkip(t, err)
	for _, args := range []string{
		"vet ./nameresolution/isthmus/... ./tests/conformance/nameresolution",
		"test -vet=off -count=1 ./nameresolution/isthmus/... ./tests/conformance/nameresolution",
	} {
		cmd := exec.CommandContext(t.Context(), "go", strings.Fields(args)...)
		cmd.Dir, cmd.Env = contribDir, append(os.Environ(), "GOWORK=off", "ISTHMUS_RESOLVER="+service.Resolver)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args, err, out)
		}
	}
}

// overlay copies files, which others may stand at. All can be written over.
func overlay(to, from string) error {
	return filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		at, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return write(filepath.Join(to, at), text)
	})
}

// checkMetadata holds the file to Dapr's schema of such files.
func checkMetadata(t *testing.T, contribDir string) {
	t.Helper()
	schema, err := jsonschema.Compile(filepath.Join(contribDir, "component-metadata-schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(contribDir, inContrib, "metadata.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var metadata any
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(metadata); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// The example of the page has what is required.
func TestTheExampleOfThePage(t *testing.T) {
	reached, err := reach("..")
	if err != nil {
		t.Fatal(err)
	}
	fields, err := reached.fields()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("isthmus/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if f.required == "true" && !strings.Contains(string(page), f.name+":") {
			t.Errorf("the example lacks %s", f.name)
		}
	}
}

// Sidecars with certificates find each other by the service of their cluster, and an app of another
// cluster by its name at the gateway there. The service of another cluster tells a sidecar nothing.
func TestOverMutualTLS(t *testing.T) {
	programstest.World(t, "isthmus")
	s, err := sandbox.New(t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	objects := t.TempDir()
	service := func(cluster string) *sandbox.Service {
		if err := os.Mkdir(filepath.Join(objects, cluster), 0o755); err != nil {
			t.Fatal(err)
		}
		started, err := s.Service(t.Context(), sandbox.ServiceOptions{
			Cluster: cluster, Authority: authority, Store: map[string]any{"file": map[string]any{"path": filepath.Join(objects, cluster)}},
		})
		programstest.OrSkip(t, err)
		return started
	}
	west, east := service("west"), service("east")
	apply := func(cluster string, texts ...string) {
		if err := write(filepath.Join(objects, cluster, "objects.yaml"), []byte(strings.Join(texts, "---\n"))); err != nil {
			t.Fatal(err)
		}
	}
	apply("west", meshtest.Cluster("east", east.Gateway), meshtest.Selection("shop", "checkout", "app: orders", "app: ledger"))
	apply("east", meshtest.Cluster("west", west.Gateway), meshtest.Export("shop", "ledger", "west"))

	started := func(by *sandbox.Service, cluster, id, address string) nr.Resolver {
		dir := t.TempDir()
		cert, key, err := authority.Leaf(sandbox.AppTrustDomain, catalog.App{Namespace: "shop", ID: id})
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"cert": cert, "key": key, "ca": authority.Anchors()} {
			if err := write(filepath.Join(dir, name), text); err != nil {
				t.Fatal(err)
			}
		}
		r := isthmus.NewResolver(logger.NewLogger("test"))
		if err := r.Init(t.Context(), nr.Metadata{
			Instance: nr.Instance{AppID: id, Namespace: "shop", Address: address, DaprInternalPort: 3502},
			Configuration: map[string]string{
				"resolver": by.Resolver, "cluster": cluster, "resolveTimeout": "10s",
				"certFile": filepath.Join(dir, "cert"), "keyFile": filepath.Join(dir, "key"), "caFile": filepath.Join(dir, "ca"),
			},
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	checkout := started(west, "west", "checkout", "127.0.0.1")
	started(west, "west", "orders", "127.0.0.2")
	started(east, "east", "ledger", "127.0.0.3")
	_, port, err := net.SplitHostPort(east.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"orders": "127.0.0.2:3502", "ledger": "ledger.shop.east.isthmus.internal:" + port} {
		var got string
		for end := time.Now().Add(time.Minute); got != want; time.Sleep(10 * time.Millisecond) {
			got, err = checkout.ResolveID(t.Context(), nr.ResolveRequest{ID: id, Namespace: "shop", Port: 3502})
			if time.Now().After(end) {
				t.Fatalf("%s is at %q (%v), want %q", id, got, err, want)
			}
		}
	}
	stray := started(west, "east", "stray", "127.0.0.4")
	if got, err := stray.ResolveID(t.Context(), nr.ResolveRequest{ID: "orders", Namespace: "shop", Port: 3502}); err == nil || !strings.Contains(err.Error(), "want /ns/isthmus-system/isthmus-east") {
		t.Errorf("the service of west answers a sidecar of east: %q, %v", got, err)
	}
}
