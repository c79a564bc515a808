package sandbox

import (
	"maps"
	"os"
	"strings"
	"testing"
)

// The programs that tests look for outside of this repository are those that make deps looks for.
func TestProgramsAreThoseOfMakeDeps(t *testing.T) {
	text, err := os.ReadFile("../.ci/servers")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "table='\n")
	table, _, found := strings.Cut(table, "\n'\n")
	if !found {
		t.Fatal("no table in .ci/servers")
	}
	type packages struct{ debian, homebrew string }
	fetched, looked := map[string]packages{}, map[string]packages{}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		debian, _, _ := strings.Cut(f[1], ",")
		fetched[f[0]] = packages{debian, strings.Trim(f[2], "-")}
	}
	for name, p := range known {
		looked[name] = packages{p.debian, p.homebrew}
	}
	if !maps.Equal(fetched, looked) {
		t.Errorf(".ci/servers has %v\nsandbox.Binary has %v", fetched, looked)
	}
}
