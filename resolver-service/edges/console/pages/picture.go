package pages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/show"
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

	lanes int
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
	laneGap, mostLanes    = 6, 8 // ways below columns, side by side
)

// draw draws a graph. link is where an app leads to; focus is the app in focus, or empty.
func draw(g *v1alpha1.GraphResponse, link func(string) string, focus string) *picture {
	d := show.Draw(g)
	p := &picture{Title: fmt.Sprintf("%s in %s and %s", show.Count(len(g.GetCalls()), "call"), g.GetCluster(), show.Count(len(g.GetClusters()), "other cluster"))}
	at := map[show.Place][2]int{}
	ends := make([]int, len(d.Columns))
	for i := range d.Columns {
		ends[i] = p.column(i, &d.Columns[i], at, link, focus)
		p.Height = max(p.Height, ends[i])
	}
	drawn := map[show.Way]bool{}
	for i := range d.Edges {
		e := &d.Edges[i]
		p.Edges = append(p.Edges, p.edge(at[e.From], at[e.To], e, ends))
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

// column places the apps of a cluster, and returns where it ends.
func (p *picture) column(i int, c *show.Column, at map[show.Place][2]int, link func(string) string, focus string) (end int) {
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
			p.Namespaces = append(p.Namespaces, label{X: x, Y: y + namespaceHeight - 8, Text: shortened(namespace, 30), Href: withQuery("/map", "namespace", namespace)})
			y += namespaceHeight
		}
		at[show.Place{Column: i, Row: row}] = [2]int{x, y}
		p.Nodes = append(p.Nodes, node{
			X: x, Y: y, Name: shortened(id, 24), Note: app.Note, Title: app.App + " in " + c.Cluster, Href: link(app.App), Focus: app.App == focus,
			ID: identifier("node", c.Cluster, app.App), TextX: x + 10, TextY: y + 16, NoteY: y + 30,
		})
		y += nodeHeight + rowGap
	}
	return y
}

// edge is a curve from side to side. Within a column it goes around at the right; past other columns
// it goes below them, so that it touches no app that it is not about.
func (p *picture) edge(from, to [2]int, e *show.Edge, ends []int) edge {
	const bend = 60
	fromX, fromY, toX, toY := from[0]+nodeWidth, from[1]+nodeHeight/2, to[0], to[1]+nodeHeight/2
	out, in, left, right := bend, -bend, e.From.Column, e.To.Column
	switch {
	case left == right:
		toX, in = toX+nodeWidth, bend
	case left > right:
		fromX, toX = from[0], to[0]+nodeWidth
		out, in, left, right = -bend, bend, right, left
	}
	drawn := edge{Title: e.Title, Way: e.Way, EndX: toX, EndY: toY}
	if right-left < 2 {
		drawn.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", fromX, fromY, fromX+out, fromY, toX+in, toY, toX, toY)
		drawn.MarkX, drawn.MarkY = (fromX+toX)/2+3*(out+in)/8, (fromY+toY)/2
		return drawn
	}
	p.lanes++
	below := slices.Max(ends[left+1:right]) + p.lanes%mostLanes*laneGap
	p.Height = max(p.Height, below+laneGap)
	turn := columnGap * out / bend // where it is past the gap beside its app, and before the other's
	drawn.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %dH%dC%d %d %d %d %d %d", fromX, fromY, fromX+out, fromY, fromX+turn-out, below, fromX+turn, below,
		toX-turn, toX-turn+out, below, toX+in, toY, toX, toY)
	drawn.MarkX, drawn.MarkY = (fromX+toX)/2, below
	return drawn
}

// shortened is a name as far as there is room.
func shortened(name string, most int) string {
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return name
}
