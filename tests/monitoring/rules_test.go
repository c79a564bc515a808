package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const folder = "../../deploy/monitoring"

// rule is one alert of rules.yaml.
type rule struct {
	Alert, Record, Expr string
	For                 string
	Labels, Annotations map[string]string
}

func rulesText(t *testing.T) string { return text(t, filepath.Join(folder, "rules.yaml")) }

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(rulesText(t)), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, slices.DeleteFunc(g.Rules, func(r rule) bool { return r.Record != "" })...)
	}
	return all
}

// panel is one panel of a dashboard with queries.
type panel struct {
	Type, Title string
	Targets     []struct{ Expr string }
}

// dashboards are the panels of each dashboard, without its rows.
func dashboards(t *testing.T) map[string][]panel {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "dashboard-*.json"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v: %v", files, err)
	}
	all := map[string][]panel{}
	ids := map[string]bool{}
	for _, file := range files {
		var d struct {
			UID, Title string
			Panels     []panel
		}
		if err := json.Unmarshal([]byte(text(t, file)), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d.UID == "" || d.Title == "" || ids[d.UID] {
			t.Errorf("%s: uid %q, title %q", file, d.UID, d.Title)
		}
		ids[d.UID] = true
		all[filepath.Base(file)] = slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" })
	}
	return all
}

func headings(page string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^###? (.*)$`).FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestTheRunbookHasEachAlert in a section of its own, and none for another.
func TestTheRunbookHasEachAlert(t *testing.T) {
	sections := headings(text(t, "../../docs/how-to/runbook.md"))
	var want []string
	for _, r := range rules(t) {
		want = append(want, r.Alert)
		url := "https://github.com/isthmus-mesh/isthmus/blob/main/docs/how-to/runbook.md#" + strings.ToLower(r.Alert)
		if r.Annotations["runbook_url"] != url {
			t.Errorf("%s: runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], url)
		}
		if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) || r.For == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, a duration or a text: %+v", r.Alert, r)
		}
	}
	for _, name := range want {
		if !slices.Contains(sections, name) {
			t.Errorf("the runbook has no section %q", name)
		}
	}
	for _, s := range sections {
		if regexp.MustCompile(`^Isthmus[A-Z]\w+$`).MatchString(s) && !slices.Contains(want, s) {
			t.Errorf("the runbook's section %q is about no alert", s)
		}
	}
}

// TestEachMetricIsDocumented has those of rules and dashboards in the reference, where other tests hold
// that it is real.
func TestEachMetricIsDocumented(t *testing.T) {
	documented := text(t, "../../docs/reference/service.md") + text(t, "../../docs/reference/sidecar.md")
	metric := regexp.MustCompile(`\b(dapr_)?isthmus_[a-z_]+\b`)
	see := func(where, expr string) {
		for _, name := range metric.FindAllString(expr, -1) {
			name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if name != "isthmus_cluster" && !strings.Contains(documented, "`"+name+"`") {
				t.Errorf("%s: %s is in no reference", where, name)
			}
		}
	}
	for _, r := range rules(t) {
		see(r.Alert, r.Expr)
	}
	for file, panels := range dashboards(t) {
		for _, p := range panels {
			for _, q := range p.Targets {
				see(fmt.Sprint(file, " ", p.Title), q.Expr)
			}
		}
	}
	for _, page := range []string{"monitoring", "runbook", "upgrade"} {
		see(page+".md", text(t, "../../docs/how-to/"+page+".md"))
	}
}
