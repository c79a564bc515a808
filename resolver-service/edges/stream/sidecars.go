package stream

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
)

// Sidecar is a client of this replica, as operators see it.
type Sidecar struct {
	App        catalog.App
	Source     netip.Addr     // that its stream comes from
	Instance   string         // empty: it only watches
	Address    netip.AddrPort // that it has registered
	Zone       string
	AppVersion string
	State      SidecarState
	Unwell     string              // why its app can't take calls, where that is why it drains
	Since      time.Time           // when its stream began
	Version    string              // of the client
	Runtime    string              // of the program that it is part of
	Identity   string              // its SPIFFE ID; empty if the service is insecure
	PlainText  bool                // calls between it and other sidecars are not encrypted
	Anchors    []string            // fingerprints of the roots that those must chain to
	Chain      []*x509.Certificate // its certificate, with those below its root

	Revision  uint64 // of the view that was sent last
	Delivered bool   // nothing that was sent waits for the client to read it
	Newest    uint64 // the revision of its app's view

	// Position is where it stands among all of this replica, in the order of Sidecars.
	Position string

	view  *catalog.View
	leads map[string]bool // the clusters that it leads to; nil until LeadsTo
}

// LeadsTo tells whether its app's view leads to a cluster. It is for one goroutine at a time.
func (s *Sidecar) LeadsTo(cluster string) bool {
	if s.leads == nil {
		s.leads = targetClusters(s.view)
	}
	return s.leads[cluster]
}

// SidecarState says whether a sidecar gets calls.
type SidecarState string

// The states of a sidecar.
const (
	Ready    SidecarState = "ready"
	Draining SidecarState = "draining" // it stops, or its app can't take calls
	Waiting  SidecarState = "waiting"  // it has not registered: its app does not listen yet
)

// Sidecars returns the clients that a filter wants, by app and address.
func (s *Server) Sidecars(wants func(catalog.App) bool) []Sidecar {
	all, _ := s.page(wants, nil, 0)
	return all
}

// Running tells how many sidecars of each app have registered, and of which their apps can't take
// calls.
func (s *Server) Running() (of map[catalog.App]int, unwell []callhealth.Unwell) {
	of = map[catalog.App]int{}
	for _, one := range s.Sidecars(func(catalog.App) bool { return true }) {
		if one.State == Waiting {
			continue
		}
		of[one.App]++
		if one.Unwell != "" {
			unwell = append(unwell, callhealth.Unwell{App: one.App, Why: one.Unwell, Since: one.Since})
		}
	}
	return of, unwell
}

// SidecarPage returns the clients that a filter wants, by app and address: those after a
// [Sidecar.Position], unless it is empty, and at most so many, unless that is 0. It also counts all
// that the filter wants. The error is that the position is none.
func (s *Server) SidecarPage(wants func(catalog.App) bool, after string, most int) (page []Sidecar, matched int, err error) {
	var from *position
	if after != "" {
		if from, err = parsePosition(after); err != nil {
			return nil, 0, err
		}
	}
	page, matched = s.page(wants, from, most)
	return page, matched, nil
}

func (s *Server) page(wants func(catalog.App) bool, after *position, most int) (page []Sidecar, matched int) {
	type placed struct {
		position
		*caller
	}
	var all []placed
	for _, c := range s.evidence.all() {
		if wants(c.app) {
			all = append(all, placed{c.position(), c})
		}
	}
	matched = len(all)
	slices.SortFunc(all, func(a, b placed) int { return a.position.compare(&b.position) })
	if after != nil {
		at, found := slices.BinarySearchFunc(all, after, func(a placed, after *position) int { return a.position.compare(after) })
		if found {
			at++
		}
		all = all[at:]
	}
	if most > 0 {
		all = all[:min(most, len(all))]
	}
	for _, one := range all {
		page = append(page, one.watch.sidecar(one.caller))
	}
	return page, matched
}

func (e *evidence) all() []*caller {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*caller, 0, len(e.callers))
	for c := range e.callers {
		all = append(all, c)
	}
	return all
}

// sidecar describes the client of a stream that has started.
func (w *watch) sidecar(c *caller) Sidecar {
	p := c.position()
	s := Sidecar{
		Position: p.String(), App: c.app, Source: c.source, State: Waiting, Since: w.since, Version: w.hello.version, Runtime: w.hello.runtime, PlainText: w.hello.plainText, Anchors: w.hello.anchors,
		Revision: w.floor(), Delivered: w.inFlight.idle(), Chain: identity.Chain(w.stream.Context()),
	}
	if id, ok := identity.FromContext(w.stream.Context()); ok {
		s.Identity = id.String()
	}
	if view, ok := c.view(); ok {
		s.Newest, s.view = view.Revision, view
	}
	i := w.hello.instance
	if i == nil {
		return s
	}
	s.Instance, s.Address, s.Zone, s.AppVersion, s.State, s.Unwell = i.ID, i.Address, i.Zone, i.Version, Ready, w.hello.unwell
	if i.Draining || w.draining.Load() {
		s.State = Draining
	}
	return s
}
