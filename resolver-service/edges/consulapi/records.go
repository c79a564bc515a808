package consulapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// caller is an app that asks, with the latest answer to each of its questions. The zero app is
// nobody: it sees nothing.
type caller struct {
	app catalog.App
	sub *topology.Subscription // nil for nobody

	// news is stored after each change of the view: to be followed, not read.
	news live.Value[*catalog.View]

	mu      sync.Mutex
	records map[string]*record
}

func newCaller(app catalog.App) *caller {
	return &caller{app: app, records: map[string]*record{}}
}

// nobody tells whether the caller has no app: it asks without a token.
func (c *caller) nobody() bool { return c.app.ID == "" }

// mostRecords is how many different questions of a caller are remembered. What is beyond
// has a new index each time it comes back.
const mostRecords = 4096

// record is the answer to one question as it stands, with the index since which it does. It
// is immutable but for the bodies, which are made once a client asks for them.
type record struct {
	index uint64
	sum   [sha256.Size]byte // of the answer, without indexes

	// What it was made from: while that is the same, so is the answer.
	view   *catalog.View
	entry  *catalog.Entry
	roster *roster
	change uint64

	value   any
	entries []*api.ServiceEntry

	bodies [2]struct { // all, and passing only
		once sync.Once
		text []byte
	}
}

// body is the answer about a service's health, without filters, as JSON.
func (r *record) body(onlyPassing bool) []byte {
	b := &r.bodies[0]
	if onlyPassing {
		b = &r.bodies[1]
	}
	b.once.Do(func() {
		entries := r.entries
		if onlyPassing {
			entries = passingOnly(entries)
		}
		b.text, _ = json.Marshal(entries) // of types that can be
	})
	return b.text
}

// passes tells whether an instance can be called.
func passes(e *api.ServiceEntry) bool { return e.Checks.AggregatedStatus() == passing }

func passingOnly(all []*api.ServiceEntry) []*api.ServiceEntry {
	return slices.DeleteFunc(slices.Clone(all), func(e *api.ServiceEntry) bool { return !passes(e) })
}

// run wakes queries that wait at each change of the view, until ctx ends.
func (c *caller) run(ctx context.Context) {
	var seen *catalog.View
	for {
		next, err := c.sub.Next(ctx, seen)
		if err != nil {
			return
		}
		seen = next
		c.news.Store(next)
	}
}

// emptyView is the view of nobody.
var emptyView = &catalog.View{Gateways: &catalog.Gateways{}}

// look is the caller's view as it stands; ok is false until there is one.
func (c *caller) look() (view *catalog.View, ok bool) {
	if c.sub == nil {
		return emptyView, true
	}
	return c.sub.View()
}

// service is the answer about one service; nil while nothing can be answered.
func (s *Server) service(c *caller, name, dc string) *record {
	name = name[:min(len(name), longestID)] // no app has a longer one, and it is remembered
	c.mu.Lock()
	defer c.mu.Unlock()
	view, ok := c.look() // with mu held, so that no record goes back
	if !ok {
		return nil
	}
	app := c.appOf(name)
	inView, _ := view.ByOwnName(app)
	all := s.registry.rosterOf(app)
	key := "service\x00" + dc + "\x00" + c.nameOf(app) // however it is written
	old := c.records[key]
	if old != nil && old.entry == inView && old.roster == all && (inView != nil || app != c.app) && old.view.Gateways == view.Gateways {
		return old
	}
	what := &scope{s, c, view, dc}
	r := &record{view: view, entry: inView, roster: all, entries: what.instances(app)}
	r.value = r.entries
	return c.remember(s, key, old, r)
}

// whole is the answer to a question about everything that a caller may see; nil while
// nothing can be answered. compute is called when something may have changed.
func (s *Server) whole(c *caller, question, dc string, compute func(*scope) any) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	view, ok := c.look()
	if !ok {
		return nil
	}
	change, _ := s.registry.changed.Load()
	key := question + "\x00" + dc
	old := c.records[key]
	if old != nil && old.view == view && old.change == change {
		return old
	}
	return c.remember(s, key, old, &record{view: view, change: change, value: compute(&scope{s, c, view, dc})})
}

// remember gives an answer its index: that of the old one if it says the same. It is
// called with mu held.
func (c *caller) remember(s *Server, key string, old, r *record) *record {
	text, err := json.Marshal(r.value)
	if err != nil {
		s.log.Error("an answer of the Consul API can't be written", "app", c.app.String(), "err", err)
	}
	r.sum = sha256.Sum256(text)
	if old != nil && old.sum == r.sum {
		r.index = old.index
	} else {
		r.index = s.counter.Add(1)
	}
	for _, e := range r.entries {
		number(e, r.index)
	}
	if old == nil && len(c.records) >= mostRecords {
		for any := range c.records {
			delete(c.records, any)
			break
		}
	}
	c.records[key] = r
	return r
}

// number gives an entry that was not registered here the index of its answer.
func number(e *api.ServiceEntry, index uint64) {
	if e.Service.ModifyIndex == 0 {
		e.Service.CreateIndex, e.Service.ModifyIndex = index, index
	}
	for _, c := range e.Checks {
		if c.ModifyIndex == 0 {
			c.CreateIndex, c.ModifyIndex = index, index
		}
	}
}
