package topology

import (
	"context"
	"strings"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// FenceChanges are the apps whose Fence may be another than before.
type FenceChanges struct {
	t *Topology

	mu   sync.Mutex
	apps map[catalog.App]struct{}
	all  bool
	wake chan struct{} // has room for one: there is something
}

// FollowFences follows the fences of all apps until Close. Only one may follow at a time.
func (t *Topology) FollowFences(ctx context.Context) (*FenceChanges, error) {
	c := &FenceChanges{t: t, apps: map[catalog.App]struct{}{}, all: true, wake: make(chan struct{}, 1)}
	return c, t.ask(ctx, func(g *Graph) {
		g.accesses.notes = newFenceNotes(c)
		for _, n := range g.apps {
			g.accesses.notes.workload(n)
		}
		if g.synced {
			c.signal()
		}
	})
}

// Close ends it.
func (c *FenceChanges) Close() {
	_ = c.t.ask(context.Background(), func(g *Graph) {
		if g.accesses.notes.to == c {
			g.accesses.notes = nil
		}
	})
}

// Changed has something in it when there are changes to Take.
func (c *FenceChanges) Changed() <-chan struct{} { return c.wake }

// Take takes the apps since the last time, in no order, or says that it may be all.
func (c *FenceChanges) Take() (apps []catalog.App, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for app := range c.apps {
		apps = append(apps, app)
	}
	all = c.all
	clear(c.apps)
	c.all = false
	return apps, all
}

// Again has Changed say once more that there are changes, after somebody has read that and not
// taken them.
func (c *FenceChanges) Again() { c.signal() }

func (c *FenceChanges) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// fenceNotes gathers what one change of the graph has reached. A nil one gathers nothing.
type fenceNotes struct {
	to        *FenceChanges
	apps      map[catalog.App]struct{}
	all       bool
	workloads map[*node]string // service accounts and ports of those with any
}

func newFenceNotes(to *FenceChanges) *fenceNotes {
	return &fenceNotes{to: to, apps: map[catalog.App]struct{}{}, workloads: map[*node]string{}}
}

func (f *fenceNotes) note(app catalog.App) {
	if f != nil {
		f.apps[app] = struct{}{}
	}
}

func (f *fenceNotes) noteAll() {
	if f != nil {
		f.all = true
	}
}

// workload notes the accounts of an app, and tells whether they are others than before.
func (f *fenceNotes) workload(n *node) (changed bool) {
	now := strings.Join(n.accounts(), " ")
	changed = f.workloads[n] != now
	if now == "" {
		delete(f.workloads, n)
	} else {
		f.workloads[n] = now
	}
	return changed
}

// flush hands on what a change has reached. Those whose instances have changed are in presents.
func (as *accesses) flushFences(all bool, presents map[*node]struct{}) {
	f := as.notes
	if f == nil {
		return
	}
	for n := range presents {
		f.note(n.app)
		if !f.workload(n) {
			continue
		}
		if n.selection == nil {
			f.all = f.all || as.cfg.Open // it may call every app
			continue
		}
		for i := range n.selection.Endpoints {
			f.note(n.selection.Endpoints[i].App)
		}
	}
	if len(f.apps) == 0 && !f.all && !all {
		return
	}
	f.to.mu.Lock()
	f.to.all = f.to.all || f.all || all
	for app := range f.apps {
		f.to.apps[app] = struct{}{}
	}
	f.to.mu.Unlock()
	f.to.signal()
	f.apps, f.all = map[catalog.App]struct{}{}, false
}
