package strict

import (
	"runtime"
	"strings"
	"testing"
)

// TestAHostileTextCostsLittle: whatever is in a text of 8 MiB, finding out that nobody writes such a
// one takes a small part of what reading it would.
func TestAHostileTextCostsLittle(t *testing.T) {
	const length = 8 << 20
	fill := func(unit string) []byte { return []byte(strings.Repeat(unit, length/len(unit))) }
	for _, c := range []struct{ name, unit string }{
		{"keys", "a: 1\n"}, {"a list", "- a\n"}, {"a list in brackets", "[a,b],"}, {"a mapping in braces", "{a: 1},"}, {"nested", "- - - - a\n"},
		{"opened and not closed", "["}, {"complex keys", "? a\n"}, {"comments", "#\n"}, {"empty lines", "\n"}, {"anchors", "- &a b\n"}, {"documents", "---\n"},
		{"documents with a little", "---\na: 1\n"}, {"what is like the end of a document", "---a: 1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := fill(c.unit)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			read := 0
			y := NewYAML(text)
			for y.Next() {
				read++
			}
			runtime.ReadMemStats(&after)
			if y.Mistake == nil || read > 0 || !strings.Contains(y.Mistake.What, "more than") || y.Mistake.Fix == "" {
				t.Errorf("%d documents were read, then %v; want that it has more than anybody writes", read, y.Mistake)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > length {
				t.Errorf("%d bytes were allocated for %d", used, length)
			}
		})
	}
	var r Report
	if _, ok := ParseJSON([]byte("["+strings.Repeat("1,", MaxValues)+"1]"), &r); ok || !strings.Contains(r.Errors[0].What, "more than") {
		t.Errorf("as JSON: %v", r.Errors)
	}
}

// TestALargeTextIsReadDocumentByDocument: each is gone before the next is read.
func TestALargeTextIsReadDocumentByDocument(t *testing.T) {
	const one = "a: [b, c, \"d\"]\ne: {f: 1}\n"
	y := NewYAML([]byte(strings.Repeat(one+"---\n", 1000) + "a: [\n"))
	var r Report
	read := 0
	for y.Next() {
		if root, ok := y.Root(&r); !ok || len(root.Children) != 4 || y.Line() != 1+read*3 && y.Line() != read*3 {
			t.Fatalf("document %d at line %d: %+v, %v", read, y.Line(), root, r.Errors)
		}
		read++
	}
	if read != 1000 || y.Mistake == nil || y.Mistake.Line < 3000 {
		t.Errorf("%d documents, then %v; want the mistake of the last", read, y.Mistake)
	}
}
