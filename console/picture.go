package console

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/show"
)

// picture is a graph as a page draws it: a column for each cluster, apps below their namespace.
type picture struct {
	Width, Height int
	Title         string
	Heads         []label
	Namespaces    []label
	Nodes         []node
	Edges         []edge
	Legend        []legend
}

// label is a text at a place.
type label struct {
	X, Y       int
	Text, Href string
}

// node is an app in a cluster.
type node struct {
	X, Y          int
	Name, Note    string
	Title, Href   string
	Focus         bool
	ID            string
	TextX, TextY  int
	NoteY, Height int
}

// edge is a way from an app to another.
type edge struct {
	Path, Title  string
	Way          show.Way
	EndX, EndY   int
	MarkX, MarkY int // its middle, where a sign is that needs no colour
}

// legend is what a kind of line means.
type legend struct {
	Way  show.Way
	Text string
}

// Measures of a picture, in pixels.
const (
	nodeWidth, nodeHeight = 190, 36
	rowGap                = 10
	columnGap             = 150
	edgeRoom              = 76 // at the right, for ways within the last column
	headHeight            = 34
	namespaceHeight       = 24
	pictureMargin         = 10
)

// draw draws a graph. link is where an app leads to; focus is the app in focus, or empty.
func draw(g *show.Graph, link func(string) string, focus string) *picture {
	d := g.Draw()
	p := &picture{Title: fmt.Sprintf("%s in %s and %s", show.Count(len(g.Calls), "call"), g.Cluster, show.Count(len(g.Clusters), "other cluster"))}
	at := map[show.Place][2]int{}
	for i := range d.Columns {
		p.column(i, &d.Columns[i], at, link, focus)
	}
	drawn := map[show.Way]bool{}
	for i := range d.Edges {
		e := &d.Edges[i]
		p.Edges = append(p.Edges, edgeBetween(at[e.From], at[e.To], e))
		drawn[e.Way] = true
	}
	for _, l := range waysInWords {
		if drawn[l.Way] {
			p.Legend = append(p.Legend, legend(l))
		}
	}
	p.Width = pictureMargin + len(d.Columns)*(nodeWidth+columnGap) - columnGap + edgeRoom
	p.Height += pictureMargin
	return p
}

// column places the apps of a cluster.
func (p *picture) column(i int, c *show.Column, at map[show.Place][2]int, link func(string) string, focus string) {
	x, y := pictureMargin+i*(nodeWidth+columnGap), headHeight
	title := c.Cluster
	if c.State != "" {
		title += " (" + c.State + ")"
	}
	p.Heads = append(p.Heads, label{X: x, Y: headHeight - 12, Text: title})
	last := ""
	for row, app := range c.Apps {
		namespace, id, found := strings.Cut(app.App, "/")
		if !found {
			id = namespace
		} else if namespace != last || row == 0 {
			last = namespace
			p.Namespaces = append(p.Namespaces, label{X: x, Y: y + namespaceHeight - 8, Text: shortened(namespace, 30), Href: "/map?namespace=" + namespace})
			y += namespaceHeight
		}
		at[show.Place{Column: i, Row: row}] = [2]int{x, y}
		p.Nodes = append(p.Nodes, node{
			X: x, Y: y, Name: shortened(id, 24), Note: app.Note, Title: app.App + " in " + c.Cluster, Href: link(app.App), Focus: app.App == focus,
			ID: identifier("node", c.Cluster, app.App), TextX: x + 10, TextY: y + 16, NoteY: y + 30,
		})
		y += nodeHeight + rowGap
	}
	p.Height = max(p.Height, y)
}

// edgeBetween is a curve from side to side; within a column it goes around at the right.
func edgeBetween(from, to [2]int, e *show.Edge) edge {
	fromX, fromY, toX, toY := from[0]+nodeWidth, from[1]+nodeHeight/2, to[0], to[1]+nodeHeight/2
	const bend = 60
	outX, inX := fromX+bend, toX-bend
	switch {
	case e.To.Column == e.From.Column:
		toX += nodeWidth
		inX = toX + bend
	case e.To.Column < e.From.Column:
		fromX, toX = from[0], to[0]+nodeWidth
		outX, inX = fromX-bend, toX+bend
	}
	return edge{
		Path:  fmt.Sprintf("M%d %dC%d %d %d %d %d %d", fromX, fromY, outX, fromY, inX, toY, toX, toY),
		Title: e.Title, Way: e.Way, EndX: toX, EndY: toY,
		MarkX: (fromX + 3*outX + 3*inX + toX) / 8, MarkY: (fromY + toY) / 2,
	}
}

// shortened is a name as far as there is room.
func shortened(name string, most int) string {
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return name
}
