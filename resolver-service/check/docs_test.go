package check

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The page that results link to has a section for each check, and no other.
func TestEveryCheckHasItsSection(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	var names, sections []string
	for _, c := range Table {
		names = append(names, c.Name)
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			sections = append(sections, strings.TrimSpace(name))
		}
	}
	if !slices.Equal(names, sections) {
		t.Errorf("the checks are\n%v\nand docs/reference/checks.md has\n%v", names, sections)
	}
}
