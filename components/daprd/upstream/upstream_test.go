package main

import (
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"sigs.k8s.io/yaml"

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
