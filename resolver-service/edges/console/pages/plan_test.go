package pages

import (
	"fmt"
	"strings"
	"testing"
)

// TestALongTextWithMistakesGetsAShortAnswer: what is wrong and the lines around it, not all of it.
func TestALongTextWithMistakesGetsAShortAnswer(t *testing.T) {
	object := func(i, mistakes int) string {
		return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: app-%d}\nspec:\n  endpoints:\n%s---\n",
			i, strings.Repeat("  - ap: orders\n", mistakes)+strings.Repeat("  - app: orders\n", 500))
	}
	var many strings.Builder
	for i := range 300 {
		many.WriteString(object(i, 150))
	}
	for name, text := range map[string]string{
		"mistakes in each of many objects": many.String(),
		"no YAML":                          many.String() + "a: [",
		"one line":                         "kind: " + strings.Repeat("x", 3<<20) + "\n" + strings.Repeat("\n", 2000),
		"more values than anybody writes":  strings.Repeat("a: 1\n", 700_000),
	} {
		t.Run(name, func(t *testing.T) {
			v := &plan{Text: text}
			if manifests := v.read(); len(manifests) > 0 || len(v.Mistakes) == 0 || len(v.Mistakes) > 250 {
				t.Errorf("%d objects, %d mistakes", len(manifests), len(v.Mistakes))
			}
			shown := 0
			for _, l := range v.Lines {
				shown += len(l.Text) + 100 // with its markup
			}
			for _, m := range v.Mistakes {
				shown += len(m.Text)
			}
			if shown > 500_000 {
				t.Errorf("%d bytes are shown of a text of %d", shown, len(text))
			}
		})
	}
}
