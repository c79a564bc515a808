package xds

import (
	"cmp"
	"slices"
	"sync"
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

// clients are the streams that are open, for operators.
type clients struct {
	mu  sync.Mutex
	all map[*stream]*[kinds]*rejection
}

func newClients() *clients { return &clients{all: map[*stream]*[kinds]*rejection{}} }

func (c *clients) add(st *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[st] = &[kinds]*rejection{}
}

func (c *clients) remove(st *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, st)
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

// status is every client, by app and age.
func (c *clients) status() []*v1alpha1.XDSClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*v1alpha1.XDSClient, 0, len(c.all))
	for st, rejections := range c.all {
		who := &st.client
		m := &v1alpha1.XDSClient{
			App: &v1alpha1.App{Namespace: who.app.Namespace, Id: who.app.ID}, Node: who.node, Program: who.program,
			Delta: who.delta, Gateway: who.gateway, SinceUnixMs: who.since.UnixMilli(),
		}
		for k, r := range rejections {
			if r != nil {
				m.Rejections = append(m.Rejections, &v1alpha1.XDSRejection{
					Type: kind(k).short(), Error: r.words, Revision: r.revision, SinceUnixMs: r.since.UnixMilli(),
				})
			}
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *v1alpha1.XDSClient) int {
		return cmp.Or(cmp.Compare(a.GetApp().GetNamespace(), b.GetApp().GetNamespace()), cmp.Compare(a.GetApp().GetId(), b.GetApp().GetId()),
			cmp.Compare(a.GetSinceUnixMs(), b.GetSinceUnixMs()), cmp.Compare(a.GetNode(), b.GetNode()))
	})
	return all
}
