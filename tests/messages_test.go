package tests

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const troubleshooting = "../docs/how-to/troubleshooting.md"

var quoted = regexp.MustCompile("`([^`]+)`")

// TestMessagesThatTroubleshootingNames holds the page to the code: each message of ours, in a
// heading or at the beginning of a row, must stand there. "…" in it is for what the code fills in.
func TestMessagesThatTroubleshootingNames(t *testing.T) {
	foreign := []string{"connection refused"}
	said := texts(t)
	ours, checked := false, 0
	for line := range strings.Lines(pages(t)[troubleshooting]) {
		if strings.HasPrefix(line, "## ") {
			ours = !strings.HasPrefix(line, "## Messages of Dapr")
		}
		heading := strings.HasPrefix(line, "### ")
		if !ours || !heading && !strings.HasPrefix(line, "| `") {
			continue
		}
		message := quoted.FindStringSubmatch(line)
		if message == nil {
			t.Errorf("%s: the heading %q quotes no message", troubleshooting, line)
			continue
		}
		for part := range strings.SplitSeq(message[1], "…") {
			if !strings.Contains(said, part) && !slices.Contains(foreign, part) {
				t.Errorf("%s: nothing in the code says %q", troubleshooting, part)
			}
		}
		checked++
	}
	if checked < 20 {
		t.Errorf("%s has %d messages of ours", troubleshooting, checked)
	}
}

// texts are all string literals of the code, without tests.
func texts(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	goFiles(t, func(s source) {
		if strings.HasSuffix(s.path, "_test.go") {
			return
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					all.WriteString(text + "\n")
				}
			}
			return true
		})
	})
	return all.String()
}
