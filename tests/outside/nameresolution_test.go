package outside

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// heavy are the modules of clouds, clusters, stores and test servers.
var heavy = regexp.MustCompile(`(?i)azure|aws|cloud\.google|^k8s\.io|^sigs\.k8s\.io|chromedp|dapr/|hashicorp|etcd/(api|client|server)|envoyproxy|redis|pgx|modelcontextprotocol|prometheus/prometheus`)

// TestWhoImportsNameResolutionGetsFewModules holds the figures of docs/explanation/architecture.md.
func TestWhoImportsNameResolutionGetsFewModules(t *testing.T) {
	page, err := os.ReadFile("../../docs/explanation/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for imports, program := range map[string]string{
		"nameresolution":  "package main\n\nimport \"" + isthmus + "/nameresolution\"\n\nfunc main() { _ = nameresolution.New }\n",
		"components/dial": "package main\n\nimport \"" + isthmus + "/components/dial\"\n\nfunc main() { _ = dial.New }\n",
	} {
		t.Run(imports, func(t *testing.T) {
			o := newOutsider(t, program)
			machine := strings.TrimSpace(o.go_("env", "GOMODCACHE"))
			own := t.TempDir() // so that what is downloaded can be counted
			o.env = append(o.env, "GOMODCACHE="+own, "GOPROXY="+published.proxy+",file://"+machine+"/cache/download,"+strings.TrimSpace(run(t, "..", nil, "go", "env", "GOPROXY")))
			o.go_("get", isthmus+"/"+imports+"@"+published.version)
			o.go_("list", "-deps", "-export", ".") // what a build does, without a link
			downloaded := 0
			if err := filepath.WalkDir(filepath.Join(own, "cache", "download"), func(path string, _ fs.DirEntry, err error) error {
				if strings.HasSuffix(path, ".zip") && !strings.Contains(path, isthmus) {
					downloaded++
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			o.go_("mod", "tidy")
			required, summed := modules(o.read("go.mod")), modules(o.read("go.sum"))
			t.Logf("a build downloads %d modules; go.mod requires %d: %v; go.sum has %d: %v", downloaded, len(required), required, len(summed), summed)
			if downloaded != len(required) {
				t.Errorf("a build downloads %d modules, and go.mod requires %d", downloaded, len(required))
			}
			for _, m := range slices.Concat(required, summed) {
				if heavy.MatchString(m) {
					t.Errorf("somebody who imports %s gets %s", imports, m)
				}
			}
			if row := fmt.Sprintf("| `%s` | %d |", imports, len(required)); !strings.Contains(string(page), row) {
				t.Errorf("docs/explanation/architecture.md lacks a row that begins with %s", row)
			}
		})
	}
}
