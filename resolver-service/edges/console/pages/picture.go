package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
	Live          bool // edges tell of calls
	Zoom          []tab
	Percent       int  // of its own size; 0: as large as there is room, all of it
	Whole         bool // that was asked for: on a narrow screen, too, where texts are too small to read

	lanes int
	texts []area // where figures are
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
	Sign         string

	// Of one with calls:
	Href    string
	Flow    string // good, some or bad; empty without calls
	Width   int
	Lines   [2]string
	TextX   int
	Half    int // of the room that Lines take, across
	TextY   int
	Crowded bool // there is no room for Lines, so they are shown while it is looked at
	curve   [4][2]int
}

// legend is what a kind of line means: a way, or a flow on one.
type legend struct{ Kind, Text string }

// isFlow tells whether the line is one with calls.
func (l legend) isFlow() bool { return l.Kind == "good" || l.Kind == "some" || l.Kind == "bad" }

// signs are those of lines that need no colour; others are as they should be.
var signs = map[string]string{string(show.Denied): "✕", string(show.Down): "!", string(show.Stale): "?", "some": "!", "bad": "✕"}

// linesInWords say what the lines of a map mean, in the order of the legend.
var linesInWords = []legend{
	{"good", "calls go well; the wider, the more"}, {"some", "calls, of which some fail"}, {"bad", "calls fail"},
	{string(show.Taken), "taken now"}, {string(show.Unseen), "taken, never seen"}, {string(show.Standby), "stands by"}, {string(show.Stale), "taken, its cluster is stale"},
	{string(show.Down), "leads nowhere now"}, {string(show.Unused), "leads nowhere; a default that nobody uses"}, {string(show.Denied), "nothing lets it in"},
}

// Measures of a picture, in pixels.
const (
	nodeWidth, nodeHeight = 190, 36
	rowGap                = 10
	columnGap             = 200
	edgeRoom              = 130 // at the right, for ways within the last column
	headHeight            = 34
	namespaceHeight       = 24
	pictureMargin         = 10
	laneGap, mostLanes    = 6, 8 // ways below columns, side by side
	letterWidth           = 6
	lineHeight            = 13
)

// draw draws a graph, and its calls where they are known. link is where an app leads to; focus is the app in
// focus, or empty.
func draw(g *v1alpha1.GraphResponse, calls *flows, link func(string) string, focus string) *picture {
	d := show.Draw(g)
	p := &picture{Title: fmt.Sprintf("%s in %s and %s", show.Count(len(g.GetCalls()), "call"), g.GetCluster(), show.Count(len(g.GetClusters()), "other cluster"))}
	at := map[show.Place][2]int{}
	ends := make([]int, len(d.Columns))
	for i := range d.Columns {
		ends[i] = p.column(i, &d.Columns[i], at, link, focus)
		p.Height = max(p.Height, ends[i])
	}
	p.Live = calls != nil && len(calls.of) > 0
	drawn := map[string]bool{}
	for i, way := range waysOf(g) {
		e := p.edge(at[d.Edges[i].From], at[d.Edges[i].To], &d.Edges[i], ends)
		if p.Live {
			p.addFlow(&e, way, calls.of[way])
		}
		drawn[cmp.Or(e.Flow, string(e.Way))] = true
		p.Edges = append(p.Edges, e)
	}
	p.place()
	for _, l := range linesInWords {
		if drawn[l.Kind] {
			p.Legend = append(p.Legend, l)
		}
	}
	p.Width = pictureMargin + len(d.Columns)*(nodeWidth+columnGap) - columnGap + edgeRoom
	p.Height += pictureMargin
	return p
}

// waysOf are the ways of a graph, in the order of its drawing's edges.
func waysOf(g *v1alpha1.GraphResponse) (all []wayOf) {
	for _, c := range g.GetCalls() {
		for _, r := range c.GetRoutes() {
			all = append(all, wayOf{c.GetIn(), show.Name(c.GetCaller()), show.Name(c.GetCallee()), r.GetCluster()})
		}
	}
	return all
}

// addFlow has an edge tell of the calls that take it.
func (p *picture) addFlow(e *edge, at wayOf, f *flow) {
	if f == nil || health(f.TrafficEdge) == "" {
		e.Title += "; no calls"
		return
	}
	e.Title = at.caller + " to " + at.callee + " in " + cmp.Or(at.to, "an unknown cluster") + ": " + inFull(f.TrafficEdge)
	e.Flow, e.Width, e.Lines = health(f.TrafficEdge), wide(f.TrafficEdge), brief(f.TrafficEdge)
	e.Sign = cmp.Or(signs[e.Flow], e.Sign)
	e.Href = explainPath(at.caller, at.callee)
	if !strings.Contains(at.caller, "/") || !strings.Contains(at.callee, "/") { // of a namespace
		e.Href = withQuery("/map", "namespace", namespaceOf(at.caller))
	}
}

// place finds room for the figures of edges: first of those that have the fewest places, which are the
// flattest.
func (p *picture) place() {
	order := make([]int, len(p.Edges))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.Edges[a].height(), p.Edges[b].height()), cmp.Compare(p.Edges[b].Width, p.Edges[a].Width))
	})
	for _, i := range order {
		e := &p.Edges[i]
		if e.Flow == "" {
			continue
		}
		e.Crowded, e.TextX, e.TextY = true, e.MarkX, e.MarkY
		half := letterWidth * (max(2*utf8.RuneCountInString(e.Sign)+utf8.RuneCountInString(e.Lines[0]), utf8.RuneCountInString(e.Lines[1])) + 1) / 2
		e.Half = half
		for _, part := range []float64{.5, .4, .6, .3, .7, .22, .78, .15, .85} {
			x, y := e.MarkX, e.MarkY
			if e.curve != ([4][2]int{}) {
				x, y = pointOn(e.curve, part)
			}
			if e.curve[0][0] == e.curve[3][0] { // it leaves and ends at one side, where boxes are
				x += half / 2
			}
			if at := (area{x - half, y - lineHeight, x + half, y + lineHeight + 2}); p.isFree(at) {
				e.Crowded, e.TextX, e.TextY = false, x, y
				p.texts = append(p.texts, at)
				break
			}
		}
	}
}

func (e *edge) height() int { return max(e.curve[3][1]-e.curve[0][1], e.curve[0][1]-e.curve[3][1]) }

// area is a part of a picture.
type area struct{ left, top, right, bottom int }

func (a area) meets(b area) bool {
	return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
}

// isFree tells whether figures have room in a place.
func (p *picture) isFree(a area) bool {
	return !slices.ContainsFunc(p.texts, a.meets) && !slices.ContainsFunc(p.Nodes, func(n node) bool {
		return a.meets(area{n.X, n.Y, n.X + nodeWidth, n.Y + nodeHeight})
	})
}

// pointOn is a point of a curve, its part behind the begin.
func pointOn(c [4][2]int, part float64) (x, y int) {
	rest := 1 - part
	at := func(i int) int {
		return int(rest*rest*rest*float64(c[0][i]) + 3*rest*rest*part*float64(c[1][i]) + 3*rest*part*part*float64(c[2][i]) + part*part*part*float64(c[3][i]))
	}
	return at(0), at(1)
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
	drawn := edge{Title: e.Title, Way: e.Way, EndX: toX, EndY: toY, Sign: signs[string(e.Way)]}
	if right-left < 2 {
		drawn.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", fromX, fromY, fromX+out, fromY, toX+in, toY, toX, toY)
		drawn.MarkX, drawn.MarkY = (fromX+toX)/2+3*(out+in)/8, (fromY+toY)/2
		drawn.curve = [4][2]int{{fromX, fromY}, {fromX + out, fromY}, {toX + in, toY}, {toX, toY}}
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

// mostFitting is how wide a picture may be for its texts to be read where all of it is shown on a screen.
const mostFitting = 1800

// zooms are the sizes in which a picture can be shown, in percent; 0: all of it as there is room.
var zooms = []int{0, 100, 150, 200}

// zoom has a picture be shown in the size that was asked for; address is that of another one.
func (p *picture) zoom(asked string, address func(zoom string) string) error {
	if p.Percent = 100; p.Width <= mostFitting {
		p.Percent = 0
	}
	if asked != "" {
		n, err := strconv.Atoi(asked)
		if err != nil || !slices.Contains(zooms, n) {
			return refuse(http.StatusBadRequest, "zoom: want one of %v", zooms)
		}
		p.Percent, p.Whole = n, n == 0
	}
	for _, n := range zooms {
		text := fmt.Sprint(n, " %")
		if n == 0 {
			text = "fit"
		}
		p.Zoom = append(p.Zoom, tab{text, address(fmt.Sprint(n)), n == p.Percent})
	}
	return nil
}

func (p *picture) shownWidth() int {
	if p.Percent > 0 {
		return p.Width * p.Percent / 100
	}
	return p.Width
}

// fitting is the class of a picture by how it fits in.
func (p *picture) fitting() string {
	class := "own"
	if p.Whole {
		class = "whole"
	} else if p.Percent == 0 {
		class = "fit"
	}
	if p.Live {
		class += " live"
	}
	return class
}
