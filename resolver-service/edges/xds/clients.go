package xds

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// maxWords bounds what is kept of a client's own words, in bytes.
const maxWords = 300

// client is who a stream is from.
type client struct {
	app     catalog.App
	node    string // as it calls itself
	program string // that it is, and its version
	gateway bool
	delta   bool
	// nameless tells that its TLS sends no server name, so gateways can't choose by it.
	nameless bool
	since    time.Time
}

// rejection is a client's refusal of what it was sent.
type rejection struct {
	words    string // the client's
	revision uint64 // that it was sent
	since    time.Time
}

// clients are the streams that are open.
type clients struct {
	max int // streams; half for one app

	mu  sync.Mutex
	all map[*stream]*[kinds]*rejection
	of  map[catalog.App]*account
}

// account is what the streams of one app have the service hold.
type account struct {
	streams int          // guarded by clients.mu
	names   atomic.Int64 // that one of them was the first to follow, of all types
}

func newClients(most int) *clients {
	return &clients{max: most, all: map[*stream]*[kinds]*rejection{}, of: map[catalog.App]*account{}}
}

// add counts a stream, or says why it is refused.
func (c *clients) add(st *stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of[st.client.app]
	switch half := max(c.max/2, 1); {
	case len(c.all) >= c.max:
		return exceeded("%d streams are open; at most %d are allowed; raise xds.maxConnections", c.max, c.max)
	case of == nil:
		of = &account{}
		c.of[st.client.app] = of
	case of.streams >= half:
		return exceeded("%s has %d streams; one app may have half of xds.maxConnections; close some, or raise it", st.client.app, half)
	}
	of.streams++
	st.account, c.all[st] = of, &[kinds]*rejection{}
	return nil
}

func (c *clients) remove(st *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, st)
	if st.account.streams--; st.account.streams == 0 {
		delete(c.of, st.client.app)
	}
}

// each calls a function with every client.
func (c *clients) each(yield func(*client)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for st := range c.all {
		yield(&st.client)
	}
}

// answered notes what a client says of a response.
func (c *clients) answered(st *stream, k kind, revision uint64, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.all[st]
	if problem == "" {
		of[k] = nil
		return
	}
	of[k] = &rejection{words: short(problem), revision: revision, since: time.Now()}
}

// maxListed bounds the clients that a status lists.
const maxListed = 50

// status adds the counts, and the clients that operators look for: those that refuse something
// first, then gateways.
func (c *clients) status(answer *v1alpha1.StatusResponse) {
	type entry struct {
		*client
		refuses bool
		of      [kinds]*rejection
	}
	c.mu.Lock()
	all := make([]entry, 0, len(c.all))
	for st, of := range c.all {
		all = append(all, entry{&st.client, *of != [kinds]*rejection{}, *of})
	}
	c.mu.Unlock()
	n := &v1alpha1.XDSCounts{Clients: uint32(len(all))}
	for _, e := range all {
		if e.gateway {
			n.Gateways++
		}
		if e.refuses {
			n.Refusing++
		}
	}
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(first(a.refuses, b.refuses), first(a.gateway, b.gateway), a.app.Compare(b.app), a.since.Compare(b.since), cmp.Compare(a.node, b.node))
	})
	answer.XdsCounts = n
	for _, who := range all[:min(len(all), maxListed)] {
		m := &v1alpha1.XDSClient{
			App: &v1alpha1.App{Namespace: who.app.Namespace, Id: who.app.ID}, Node: who.node, Program: who.program,
			Delta: who.delta, Gateway: who.gateway, SinceUnixMs: who.since.UnixMilli(),
		}
		for k, r := range who.of {
			if r != nil {
				m.Rejections = append(m.Rejections, &v1alpha1.XDSRejection{
					Type: kind(k).short(), Error: r.words, Revision: r.revision, SinceUnixMs: r.since.UnixMilli(),
				})
			}
		}
		answer.Xds = append(answer.Xds, m)
	}
}
