package show

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// GraphFormats are the formats of a graph's pictures.
var GraphFormats = []string{"svg", "dot", "mermaid"}

// Picture writes a graph in one of GraphFormats.
func Picture(w io.Writer, g *v1alpha1.GraphResponse, format string) error {
	out := bufio.NewWriter(w)
	d := Draw(g)
	switch format {
	case "svg":
		d.svg(out)
	case "dot":
		d.dot(out)
	default:
		d.mermaid(out)
	}
	return out.Flush()
}

func (p Place) id() string { return fmt.Sprintf("n%d_%d", p.Column, p.Row) }

func (c *Column) title() string {
	if c.State == "" {
		return c.Cluster
	}
	return c.Cluster + " (" + c.State + ")"
}

func (e edgeStyle) line() string {
	if e.dashed {
		return "dashed"
	}
	return "solid"
}

// dot writes a digraph in the language of Graphviz.
func (d *Drawing) dot(w io.Writer) {
	fmt.Fprint(w, "digraph isthmus {\n  rankdir=LR\n  node [shape=box, style=rounded, fontname=\"sans-serif\"]\n")
	for i := range d.Columns {
		c := &d.Columns[i]
		fmt.Fprintf(w, "  subgraph cluster_%d {\n    label=%s\n", i, quoteDOT(c.title()))
		for row, app := range c.Apps {
			fmt.Fprintf(w, "    %s [label=%s]\n", Place{i, row}.id(), quoteDOT(strings.TrimSuffix(app.App+"\n"+app.Note, "\n")))
		}
		fmt.Fprint(w, "  }\n")
	}
	for i := range d.Edges {
		e := &d.Edges[i]
		fmt.Fprintf(w, "  %s -> %s [color=%q, style=%s, tooltip=%s]\n", e.From.id(), e.To.id(), styles[e.Way].colour, styles[e.Way].line(), quoteDOT(e.Title))
	}
	fmt.Fprint(w, "}\n")
}

// quoteDOT is a text as a quoted ID of DOT, which ends at the first quote and knows \n as a line's
// end.
func quoteDOT(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(catalog.Printable(line))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}

// mermaid writes a flowchart in the language of Mermaid.
func (d *Drawing) mermaid(w io.Writer) {
	fmt.Fprint(w, "flowchart LR\n")
	for i := range d.Columns {
		c := &d.Columns[i]
		fmt.Fprintf(w, "  subgraph c%d[%s]\n", i, quoteMermaid(c.title()))
		for row, app := range c.Apps {
			fmt.Fprintf(w, "    %s[%s]\n", Place{i, row}.id(), quoteMermaid(strings.TrimSuffix(app.App+", "+app.Note, ", ")))
		}
		fmt.Fprint(w, "  end\n")
	}
	for i := range d.Edges {
		e := &d.Edges[i]
		arrow := "-->"
		if styles[e.Way].dashed {
			arrow = "-.->"
		}
		fmt.Fprintf(w, "  %s %s %s\n", e.From.id(), arrow, e.To.id())
	}
	for i := range d.Edges {
		fmt.Fprintf(w, "  linkStyle %d stroke:%s\n", i, styles[d.Edges[i].Way].colour)
	}
}

// quoteMermaid is a text as a quoted label of Mermaid, which knows entities and no other escapes.
func quoteMermaid(s string) string {
	return `"` + strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;").Replace(catalog.Printable(s)) + `"`
}

// Measures of an SVG picture, in pixels.
const (
	boxWidth, boxHeight = 220, 34
	rowHeight           = 46
	columnWidth         = boxWidth + 160
	marginX, marginY    = 90, 60
)

func (p Place) x() int { return marginX + p.Column*columnWidth }
func (p Place) y() int { return marginY + p.Row*rowHeight }

// svg writes a picture with a column for each cluster.
func (d *Drawing) svg(w io.Writer) {
	rows := 1
	for i := range d.Columns {
		rows = max(rows, len(d.Columns[i].Apps))
	}
	width, height := 2*marginX+len(d.Columns)*columnWidth-(columnWidth-boxWidth), marginY+rows*rowHeight+20
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">
<style>
.b{fill:#fff;stroke:#546e7a}.t{fill:#263238}.n{fill:#607d8b;font-size:11px}.h{fill:#263238;font-weight:bold;font-size:15px}
@media (prefers-color-scheme: dark){.b{fill:#263238;stroke:#90a4ae}.t,.h{fill:#eceff1}.n{fill:#b0bec5}}
</style>
`, width, height, width, height)
	for i := range d.Edges {
		e := &d.Edges[i]
		dash := ""
		if styles[e.Way].dashed {
			dash = ` stroke-dasharray="5 4"`
		}
		fmt.Fprintf(w, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"%s><title>%s</title></path>`+"\n", e.path(), styles[e.Way].colour, dash, text(e.Title))
		x, y := e.end()
		fmt.Fprintf(w, `<circle cx="%d" cy="%d" r="3" fill="%s"/>`+"\n", x, y, styles[e.Way].colour)
	}
	for i := range d.Columns {
		c := &d.Columns[i]
		fmt.Fprintf(w, `<text class="h" x="%d" y="%d">%s</text>`+"\n", Place{i, 0}.x(), marginY-20, text(c.title()))
		for row, app := range c.Apps {
			p := Place{i, row}
			fmt.Fprintf(w, `<rect class="b" x="%d" y="%d" width="%d" height="%d" rx="6"/><text class="t" x="%d" y="%d">%s</text>`,
				p.x(), p.y(), boxWidth, boxHeight, p.x()+10, p.y()+15, text(shorten(app.App)))
			fmt.Fprintf(w, `<text class="n" x="%d" y="%d">%s</text>`+"\n", p.x()+10, p.y()+29, text(app.Note))
		}
	}
	fmt.Fprint(w, "</svg>\n")
}

// end is the point of an edge at the callee.
func (e *Edge) end() (x, y int) {
	if e.To.Column > e.From.Column {
		return e.To.x(), e.To.y() + boxHeight/2
	}
	return e.To.x() + boxWidth, e.To.y() + boxHeight/2
}

// path is a curve: to another column from side to side, within one around its right side.
func (e *Edge) path() string {
	x, y := e.end()
	fromX, fromY := e.From.x()+boxWidth, e.From.y()+boxHeight/2
	if e.To.Column < e.From.Column {
		fromX = e.From.x()
	}
	bend := 60
	outX, inX := fromX+bend, x+bend
	switch {
	case e.To.Column > e.From.Column:
		inX = x - bend
	case e.To.Column < e.From.Column:
		outX = fromX - bend
	}
	n := strconv.Itoa
	return "M" + n(fromX) + " " + n(fromY) + "C" + n(outX) + " " + n(fromY) + " " + n(inX) + " " + n(y) + " " + n(x) + " " + n(y)
}

// shorten is a name as far as a box has room.
func shorten(name string) string {
	const most = 28
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return name
}

// text is a text as XML has it.
func text(s string) string { return html.EscapeString(catalog.Printable(s)) }
