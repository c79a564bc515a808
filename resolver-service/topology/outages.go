package topology

// noteOutage notes that an app loses its last ready instance here, or has one again. One that nobody
// calls by an object or from another cluster is no outage; nor is one with an address that it gets in
// the second part of a change.
func (g *Graph) noteOutage(n *node, ready, withheld bool) {
	_, self := n.callers[n]
	called := n.export != nil || len(n.callers) > 1 || len(n.callers) == 1 && !self
	lost := !ready && !withheld && len(n.ready) > 0 && called
	if g.saved == nil && g.cfg.Events != nil && (lost || ready && n.out) {
		n.out = lost
		g.outages = append(g.outages, n)
	}
}

// tellOutages tells of what was noted, unless it is over already.
func (g *Graph) tellOutages() {
	for _, n := range g.outages {
		switch {
		case n.out && !n.outTold:
			g.cfg.Events.Warn("app has lost its last ready instance in this cluster", "app", n.app.String(), "draining", n.draining)
		case !n.out && n.outTold:
			g.cfg.Events.Info("app has ready instances in this cluster again", "app", n.app.String(), "ready", len(n.ready))
		}
		n.outTold = n.out
	}
	g.outages = nil
}
