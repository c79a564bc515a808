package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Declared says whose declarations of calls count.
type Declared struct {
	Annotations bool // of pods: the word of whoever may deploy them
	Sidecars    bool // that run: the word of whoever has the app's key
}

// What a declared selection is derived from.
const (
	fromPods     = "the annotation isthmus.dev/calls of its pods"
	fromSidecars = "calls in the configuration of its sidecars"
)

// declared is the selection that an app's instances declare, of all of them together; nil where none
// does. It is the same as before where they declare the same.
func (ss *selections) declared(n *node) *catalog.AppEndpoints {
	var all []catalog.Endpoint
	differ := false
	add := func(rank Rank, counts bool) {
		var last catalog.Calls // most instances declare the same
		for i := range n.instances {
			in := &n.instances[i]
			calls := in.origin.Value().calls
			if in.rank != rank || calls == "" || calls == last || !ss.owners.owns(n, in.address()) {
				continue
			}
			differ = differ || last != ""
			last = calls
			if !counts {
				ss.remark(n.app, uncounted)
				return
			}
			for app := range calls.Apps() {
				if !slices.ContainsFunc(all, func(e catalog.Endpoint) bool { return e.App == app }) {
					all = append(all, catalog.Endpoint{App: app, SelfDeclared: rank == Live})
				}
			}
		}
	}
	add(Scheduled, ss.cfg.Declared.Annotations)
	add(Live, ss.cfg.Declared.Sidecars)
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b catalog.Endpoint) int { return a.App.Compare(b.App) })
	if now := n.selection; now != nil && now.Declared && slices.EqualFunc(now.Endpoints, all, sameDeclared) {
		return now
	}
	if differ {
		ss.remark(n.app, differing)
	}
	s := &catalog.AppEndpoints{App: n.app, Endpoints: all, Declared: true}
	for i := range all {
		from := fromPods
		if all[i].SelfDeclared {
			from = fromSidecars
		}
		s.From = append(s.From, from)
	}
	s.Source.From = s.From[0]
	return s
}

// remark is something about what an app declares that an operator should know.
type remark struct {
	app  catalog.App
	text string
}

const (
	differing = "instances of an app declare different calls; all of them count, until an AppEndpoints object says otherwise"
	uncounted = "sidecars of an app declare calls, which don't count here; set declared: {sidecars: true}, or write an AppEndpoints object"
)

func (ss *selections) remark(app catalog.App, text string) {
	if len(ss.remarks) < maxTakeovers && ss.saved == nil {
		ss.remarks = append(ss.remarks, remark{app, text})
	}
}

func sameDeclared(a, b catalog.Endpoint) bool {
	return a.App == b.App && a.SelfDeclared == b.SelfDeclared
}

// selfDeclares tells whether nothing but its own sidecars' word is the app's selection.
func (n *node) selfDeclares() bool {
	return n.selection != nil && n.selection.Declared && !slices.ContainsFunc(n.selection.Endpoints, func(e catalog.Endpoint) bool { return !e.SelfDeclared })
}
