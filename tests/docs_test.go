package tests

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/actors"
	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/configstore/dapr"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/etcd"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes"
	"github.com/isthmus-mesh/isthmus/foreign"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/strict"
)

const (
	index    = "../docs/README.md"
	glossary = "../docs/glossary.md"
)

// pages are the README and every page in docs/ and the folders below it, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md"}
	err := filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	read(t, paths, all)
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

// snippet is a fenced block of a page.
type snippet struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^( *)```([a-z]+)\n(.*?)^ *```$")

func snippets(page string) []snippet {
	var found []snippet
	for _, match := range fence.FindAllStringSubmatch(page, -1) {
		var text strings.Builder
		for line := range strings.Lines(match[3]) {
			text.WriteString(strings.TrimPrefix(line, match[1]))
		}
		found = append(found, snippet{match[2], text.String()})
	}
	return found
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
	for path, page := range pages(t) {
		for _, s := range snippets(page) {
			if s.language != "yaml" {
				continue
			}
			var top map[string]any
			_ = yaml.Unmarshal([]byte(s.text), &top)
			switch {
			case strings.Contains(s.text, "apiVersion: "+catalog.Version):
				read["objects"]++
				if _, errs := api.DecodeYAML(path, []byte(s.text)); len(errs) > 0 {
					t.Errorf("%s: %v\n%s", path, errs, s.text)
				}
			case strings.Contains(s.text, "smi-spec.io/"):
				read["documents"]++
				_, errs := api.DecodeFile(path, []byte(s.text), func(root *strict.Node) bool {
					d := foreign.Decode(path, root)
					if d != nil && d.Err != nil {
						t.Errorf("%v\n%s", d.Err, s.text)
					}
					return d != nil
				})
				if len(errs) > 0 {
					t.Errorf("%s: %v\n%s", path, errs, s.text)
				}
			case top["kind"] == "Configuration":
				read["components"]++
				initialise(t, path, top)
			case top["daprd"] != nil:
				read["bridges"]++
				if _, err := actors.Parse(path, []byte(s.text)); err != nil {
					t.Errorf("%v\n%s", err, s.text)
				}
			case top["cluster"] != nil:
				read["services"]++
				if _, err := resolverservice.Parse(path, withoutServer(t, path, s.text, top)); err != nil {
					t.Errorf("%v\n%s", err, s.text)
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

var flag = regexp.MustCompile(`(?:^|\s)(--?[a-z][a-z-]*)`)

// TestCommandsInThePages holds every isthmus command line to what the program takes.
func TestCommandsInThePages(t *testing.T) {
	program := filepath.Join(t.TempDir(), "isthmus")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "../cmd/isthmus").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	checked := 0
	helps := map[string]string{} // of the commands
	for path, page := range pages(t) {
		for _, s := range snippets(page) {
			if s.language != "console" && s.language != "sh" {
				continue
			}
			for line := range strings.Lines(s.text) {
				line, _, _ = strings.Cut(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "$ ")), " #")
				words := strings.Fields(line)
				if len(words) < 2 || filepath.Base(words[0]) != "isthmus" || strings.HasPrefix(words[1], "-") {
					continue
				}
				command := words[1:2]
				if len(words) > 2 && words[1] == "link" { // whose flags are those of its commands
					command = words[1:3]
				}
				help, known := helps[strings.Join(command, " ")]
				if !known {
					out, err := exec.Command(program, append(slices.Clone(command), "--help")...).CombinedOutput()
					if err != nil {
						t.Errorf("%s: %q: %s", path, line, out)
						continue
					}
					help = string(out)
					helps[strings.Join(command, " ")] = help
				}
				flags := strings.FieldsFunc(help, func(r rune) bool { return strings.ContainsRune(" ,\n\t=[]", r) })
				for _, match := range flag.FindAllStringSubmatch(line, -1) {
					if !slices.Contains(flags, match[1]) {
						t.Errorf("%s: %q: isthmus %s knows no flag %s", path, line, strings.Join(command, " "), match[1])
					}
				}
				checked++
			}
		}
	}
	if checked == 0 {
		t.Error("the pages show no command")
	}
}

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
