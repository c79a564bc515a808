package conformance

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	nr "github.com/dapr/components-contrib/nameresolution"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

var update = flag.Bool("update", false, "run the suite for all resolvers, and write the table into the page")

// page has the table of what each resolver passes, between two marks.
const (
	page  = "../../../docs/reference/conformance.md"
	begin = "<!-- table of the conformance suite: written by a test -->\n"
	end   = "<!-- end of the table -->\n"
)

// patience is for the machine of CI, which runs other tests at the same time.
const patience = 20

// suiteVariable names the resolver that a process runs the suite for. If patientVariable is set, that is
// in no hurry.
const (
	suiteVariable   = "NAME_RESOLUTION_CONFORMANCE_SUITE"
	patientVariable = "NAME_RESOLUTION_CONFORMANCE_PATIENT"
)

// TestSuite runs the suite for one resolver, as one that claims everything: in a process of its own,
// since some resolvers fail checks, end the process or leave goroutines in it. The other tests start it.
func TestSuite(t *testing.T) {
	name, ok := os.LookupEnv(suiteVariable)
	if !ok {
		t.Skip("others run this, each for a resolver")
	}
	for _, f := range faults {
		if f.name == name {
			faultySuite(t, f)
			return
		}
	}
	var names []string
	for _, r := range resolvers {
		if r.name == name {
			setup := r.setup()
			if os.Getenv(patientVariable) != "" {
				setup.Patience = patience
			}
			Run(t, func() nr.Resolver { return r.new(quietLogger()) }, setup, All()...)
			return
		}
		names = append(names, r.name)
	}
	t.Fatalf("%s=%s names no resolver; there are: %s", suiteVariable, name, strings.Join(names, "; "))
}

// result is how a check ended: ✓, ✗, or – if it does not apply.
var (
	results = map[string]string{"PASS": "✓", "FAIL": "✗", "SKIP": "–"}
	ended   = regexp.MustCompile(`--- (PASS|FAIL|SKIP): TestSuite/(\w+/\w+) `)
)

// suite runs the suite for a resolver, and returns the result of each check with all that it said.
func suite(t *testing.T, name string, env ...string) (cells map[string]string, said string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSuite$", "-test.v", "-test.timeout=15m") //nolint:gosec
	cmd.Env = append(append(os.Environ(), suiteVariable+"="+name), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // fails with any check
	cells = map[string]string{}
	for _, found := range ended.FindAllStringSubmatch(out.String(), -1) {
		cells[found[2]] = results[found[1]]
	}
	return cells, out.String()
}

// TestOurs holds our resolvers to the table. What those of others do depends on times, so that make
// conformance alone writes their columns.
func TestOurs(t *testing.T) {
	programstest.World(t, "isthmus")
	_, written, _ := table(t)
	header, _, _ := strings.Cut(written, "\n")
	names := strings.Split(strings.TrimSuffix(header, " |"), " | ")
	for _, r := range resolvers {
		if !strings.HasPrefix(r.name, "isthmus") {
			continue
		}
		column := slices.Index(names, r.name)
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			cells, said := suite(t, r.name, patientVariable+"=1")
			for _, line := range strings.Split(written, "\n")[2:] {
				columns := strings.Split(strings.TrimSuffix(line, " |"), " | ")
				name := strings.TrimPrefix(columns[0], "| ")
				if name != "" && name != race && cells[name] != columns[column] {
					t.Errorf("%s is %q, and %q in the table of %s", name, cells[name], columns[column], page)
				}
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
}

// table returns the page's table, with what is before and after it.
func table(t *testing.T) (before, written, after string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	written, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s lacks %q or %q", page, begin, end)
	}
	return before, written, after
}

func TestTable(t *testing.T) {
	if !*update {
		t.Skip("make conformance runs it, on a machine that does nothing else")
	}
	programstest.World(t, "isthmus", "consul", "etcd", "kube-apiserver", "kubectl", "coredns")
	all, said := make([]map[string]string, len(resolvers)), make([]string, len(resolvers))
	t.Run("suites", func(t *testing.T) {
		for i, r := range resolvers {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel() // most of the time is waiting
				if all[i], said[i] = suite(t, r.name); len(all[i]) != len(checks()) {
					t.Errorf("the suite has ended with %d of %d checks", len(all[i]), len(checks()))
				}
				t.Log(said[i])
			})
		}
	})
	if t.Failed() {
		return
	}
	before, written, after := table(t)
	// With the race detector only its own row counts, and without it the others.
	rows := strings.SplitAfter(written, "\n")
	rows = rows[:len(rows)-1]
	races := slices.IndexFunc(rows, func(row string) bool { return strings.HasPrefix(row, "| "+race+" |") })
	if races < 0 {
		rows, races = append(rows, ""), len(rows)
	}
	if raced.Enabled {
		rows[races] = raceRow(said)
	} else {
		rows = append(checkRows(all), rows[races])
	}
	if err := os.WriteFile(page, []byte(before+begin+strings.Join(rows, "")+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// checkRows are the table but for its last row.
func checkRows(all []map[string]string) (rows []string) {
	names := []string{"check", "a resolver that passes"}
	for _, r := range resolvers {
		names = append(names, r.name)
	}
	rows = append(rows, row(names...), row(slices.Repeat([]string{"---"}, len(names))...))
	for _, c := range checks() {
		cells := []string{c.Group + "/" + c.Name, c.Says}
		for i := range resolvers {
			cells = append(cells, all[i][c.Group+"/"+c.Name])
		}
		rows = append(rows, row(cells...))
	}
	return rows
}

// race is the row of what Go's race detector finds in all of the suite.
const race = "Race"

func raceRow(said []string) string {
	cells := []string{race, "has no data race in all of this, as Go's detector finds them"}
	for _, text := range said {
		cell := results["PASS"]
		if strings.Contains(text, "WARNING: DATA RACE") {
			cell = results["FAIL"]
		}
		cells = append(cells, cell)
	}
	return row(cells...)
}
