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

var update = flag.Bool("update", false, "write the table into the page")

// page has the table of what each resolver passes, between two marks.
const (
	page  = "../../../docs/reference/conformance.md"
	begin = "<!-- table of the conformance suite: written by a test -->\n"
	end   = "<!-- end of the table -->\n"
)

// suiteVariable names the resolver that a process runs the suite for.
const suiteVariable = "NAME_RESOLUTION_CONFORMANCE_SUITE"

// TestSuite runs the suite for one resolver, as one that claims everything: in a process of its own,
// since some resolvers fail checks, end the process or leave goroutines in it. TestTable and TestEachCheckCanFail start it.
func TestSuite(t *testing.T) {
	name, ok := os.LookupEnv(suiteVariable)
	if !ok {
		t.Skip("others run this, each for a resolver")
	}
	for _, f := range faults {
		if f.name == name {
			faultySuite(t, f)
		}
	}
	for _, r := range resolvers {
		if r.name == name {
			Run(t, func() nr.Resolver { return r.new(quietLogger()) }, r.setup(), All()...)
		}
	}
}

// result is how a check ended: ✓, ✗, or – if it does not apply.
var (
	results = map[string]string{"PASS": "✓", "FAIL": "✗", "SKIP": "–"}
	ended   = regexp.MustCompile(`--- (PASS|FAIL|SKIP): TestSuite/(\w+/\w+) `)
)

// suite runs the suite for a resolver, and returns the result of each check with all that it said.
func suite(t *testing.T, name string) (cells map[string]string, said string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSuite$", "-test.v", "-test.timeout=15m") //nolint:gosec
	cmd.Env = append(os.Environ(), suiteVariable+"="+name)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // fails with any check
	cells = map[string]string{}
	for _, found := range ended.FindAllStringSubmatch(out.String(), -1) {
		cells[found[2]] = results[found[1]]
	}
	return cells, out.String()
}

func TestTable(t *testing.T) {
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
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	written, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s lacks %q or %q", page, begin, end)
	}
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
	table := strings.Join(rows, "")
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written != table {
		t.Errorf("the table of %s is another; write it by: go test ./conformance -run TestTable -update\n%s", page, table)
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
