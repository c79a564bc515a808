package tests

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/actors"
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/configstore/dapr"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/etcd"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/tests/page"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

const (
	index    = "../docs/README.md"
	glossary = "../docs/glossary.md"
)

// pages are the README and every page in docs/ and the folders below it, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all, err := page.All("..")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// read adds the texts of files to all.
func read(t *testing.T, paths []string, all map[string]string) {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^):]*))?\)`)

// TestLinksLeadSomewhere holds links to the files and headings that there are.
func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for path, page := range all {
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(page, ""), -1) {
			target := path
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(path), match[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, match[1], err)
			} else if match[2] != "" && !slices.Contains(anchors(all[target]), match[2]) {
				t.Errorf("%s links to %s#%s; that page has no such heading", path, match[1], match[2])
			}
		}
	}
}

// TestThePagesAreFound holds every page to a link from the index, and to one to the glossary.
func TestThePagesAreFound(t *testing.T) {
	all := pages(t)
	linked := map[string]bool{}
	for _, match := range link.FindAllStringSubmatch(all[index], -1) {
		linked[filepath.Join(filepath.Dir(index), match[1])] = true
	}
	for path, page := range all {
		if !strings.HasPrefix(path, "../docs/") || path == index {
			continue
		}
		if !linked[path] {
			t.Errorf("%s has no link to %s", index, path)
		}
		if path != glossary && !strings.Contains(page, "[Glossary](") {
			t.Errorf("%s has no link to the glossary", path)
		}
	}
}

// TestYAMLInThePages has everything that reads YAML read what the pages show.
func TestYAMLInThePages(t *testing.T) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DAPR_TRUST_ANCHORS", string(authority.Anchors())) // which sidecars in Kubernetes have
	read := map[string]int{}
	for path, text := range pages(t) {
		for _, s := range page.Snippets(text) {
			if s.Language != "yaml" {
				continue
			}
			var top map[string]any
			_ = yaml.Unmarshal([]byte(s.Text), &top)
			switch {
			case strings.Contains(s.Text, "apiVersion: "+catalog.Version):
				read["objects"]++
				if _, errs := api.DecodeYAML(path, []byte(s.Text)); len(errs) > 0 {
					t.Errorf("%s: %v\n%s", path, errs, s.Text)
				}
			case strings.Contains(s.Text, "smi-spec.io/"):
				read["documents"]++
				_, errs := api.DecodeFile(path, []byte(s.Text), func(root *strict.Node) bool {
					d := smimcs.Decode(path, root)
					if d != nil && d.Err != nil {
						t.Errorf("%v\n%s", d.Err, s.Text)
					}
					return d != nil
				})
				if len(errs) > 0 {
					t.Errorf("%s: %v\n%s", path, errs, s.Text)
				}
			case top["kind"] == "Configuration":
				read["components"]++
				initialise(t, path, top)
			case top["placement"] != nil:
				read["bridges"]++
				if _, err := actors.Parse(path, []byte(s.Text)); err != nil {
					t.Errorf("%v\n%s", err, s.Text)
				}
			case top["cluster"] != nil:
				read["services"]++
				if _, err := resolverservice.Parse(path, withoutServer(t, path, s.Text, top)); err != nil {
					t.Errorf("%v\n%s", err, s.Text)
				}
			case top["store"] != nil:
				read["stores"]++
				decodeStore(t, path, top["store"])
			}
		}
	}
	for _, kind := range []string{"objects", "documents", "components", "bridges", "services", "stores"} {
		if read[kind] == 0 {
			t.Errorf("the pages show no %s", kind)
		}
	}
}

// withoutServer is the text of a service's configuration that can be read on any machine:
// what its store says of files and servers is checked by itself, and left out.
func withoutServer(t *testing.T, path, text string, top map[string]any) []byte {
	t.Helper()
	if top["store"] == nil || !decodeStore(t, path, top["store"]) {
		return []byte(text)
	}
	delete(top, "store")
	if top["replicas"] != nil {
		top["store"] = map[string]any{"consul": map[string]any{}} // replicas want one that they can share
	}
	rest, err := yaml.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return rest
}

// decodeStore holds a store's settings to what its kind takes, and tells whether that kind
// needs a server.
func decodeStore(t *testing.T, path string, store any) (server bool) {
	t.Helper()
	named, _ := store.(map[string]any)
	if len(named) != 1 {
		t.Errorf("%s: store: names %d kinds: %v", path, len(named), store)
	}
	for kind, from := range named {
		var into any
		switch kind {
		case "embedded":
			into = &embedded.Config{}
		case "file":
			into = &file.Config{}
		case "consul":
			into, server = &consul.Config{}, true
		case "etcd":
			into, server = &etcd.Config{}, true
		case "kubernetes":
			into, server = &kubernetes.Config{}, true
		case "dapr":
			into, server = &dapr.Config{}, true
		default:
			t.Errorf("%s: store: unknown kind %s", path, kind)
			continue
		}
		for _, err := range strict.DecodeValue("store."+kind, from, into) {
			t.Errorf("%s: %v", path, err)
		}
	}
	return server
}

// initialise gives the configuration of a Dapr Configuration to the component.
func initialise(t *testing.T, path string, top map[string]any) {
	t.Helper()
	spec, _ := top["spec"].(map[string]any)
	resolution, _ := spec["nameResolution"].(map[string]any)
	if resolution["component"] != "isthmus" {
		return
	}
	configuration, _ := resolution["configuration"].(map[string]any)
	if configuration["store"] != nil && decodeStore(t, path, configuration["store"]) {
		configuration["store"] = map[string]any{"file": map[string]any{"path": "."}} // for a machine without that server
	}
	r := nameresolution.New(nameresolution.Options{
		Local: func(string, string, any) (nameresolution.LocalResolver, error) { return nothing{}, nil },
	})
	self := nameresolution.Instance{App: catalog.App{Namespace: "shop", ID: "checkout"}, Address: "127.0.0.1", Port: 50002}
	t.Chdir(t.TempDir())
	if err := r.Init(t.Context(), resolution["configuration"], self); err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	if err := r.Close(); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// nothing is a local resolver that knows no app.
type nothing struct{}

func (nothing) Find(context.Context, catalog.App, int) ([]string, error) { return nil, nil }
func (nothing) Close() error                                             { return nil }

var (
	sourcePath = regexp.MustCompile("`((?:[a-z0-9-]+/)+[a-z0-9_.-]*)`")
	sourceFile = regexp.MustCompile("`((?:[a-z0-9-]+/)*[a-z0-9_]+\\.go)`")
)

// TestFilesThatThePagesName holds the architecture page to the folders of the tree, and every
// page to its files.
func TestFilesThatThePagesName(t *testing.T) {
	all := pages(t)
	for _, match := range sourcePath.FindAllStringSubmatch(all["../docs/explanation/architecture.md"], -1) {
		found := false
		for _, below := range []string{"..", "../resolver-service", "../nameresolution"} {
			_, err := os.Stat(filepath.Join(below, match[1]))
			found = found || err == nil
		}
		if !found && !strings.HasPrefix(match[1], "components-contrib/") {
			t.Errorf("architecture.md names %s, which does not exist", match[1])
		}
	}
	var sources strings.Builder // their paths, each after a slash
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && (entry.Name() == ".git" || path == "../bin") {
			return filepath.SkipDir
		}
		sources.WriteString(filepath.ToSlash(path) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, page := range all {
		for _, match := range sourceFile.FindAllStringSubmatch(page, -1) {
			if !strings.Contains(sources.String(), "/"+match[1]+"\n") {
				t.Errorf("%s names %s, which does not exist", path, match[1])
			}
		}
	}
}

var testName = regexp.MustCompile("`([a-z0-9/-]+): (Test[A-Za-z0-9]+)`")

// TestTestsThatTheThreatModelNames holds each promise of the threat model to a test.
func TestTestsThatTheThreatModelNames(t *testing.T) {
	const page = "../docs/explanation/threat-model.md"
	named := testName.FindAllStringSubmatch(pages(t)[page], -1)
	if len(named) < 20 {
		t.Fatalf("%s names %d tests", page, len(named))
	}
	for _, match := range named {
		folder, name := match[1], match[2]
		files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]string{}
		read(t, files, there)
		found := false
		for _, text := range there {
			found = found || strings.Contains(text, "\nfunc "+name+"(t *testing.T)")
		}
		if !found {
			t.Errorf("%s names %s in %s, which does not exist", page, name, folder)
		}
	}
}
