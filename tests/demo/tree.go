package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// span is what the tree shows of one span.
type span struct {
	id, parent string
	name       string
	service    string
	cluster    string
	start, end time.Time
	notes      []string // "key=value"
}

// tree draws the spans of one trace, children below their parents in the order in
// which they began. A span whose parent is not among them is a root.
func tree(spans []span) string {
	known := map[string]bool{}
	for _, s := range spans {
		known[s.id] = true
	}
	children := map[string][]span{}
	for _, s := range spans {
		parent := s.parent
		if !known[parent] || parent == s.id {
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	for _, siblings := range children {
		slices.SortFunc(siblings, func(a, b span) int { return a.start.Compare(b.start) })
	}
	var b strings.Builder
	for _, root := range children[""] {
		draw(&b, children, root, "", "")
	}
	return b.String()
}

func draw(b *strings.Builder, children map[string][]span, s span, first, rest string) {
	took := s.end.Sub(s.start).Round(10 * time.Microsecond)
	fmt.Fprintf(b, "%s%-6s %s  %s  (%s)\n", first, s.cluster, s.service, s.name, took)
	below := children[s.id]
	stem := "   "
	if len(below) > 0 {
		stem = "│  "
	}
	for _, note := range s.notes {
		fmt.Fprintf(b, "%s%s       %s\n", rest, stem, note)
	}
	for i, child := range below {
		if i == len(below)-1 {
			draw(b, children, child, rest+"└─ ", rest+"   ")
		} else {
			draw(b, children, child, rest+"├─ ", rest+"│  ")
		}
	}
}
