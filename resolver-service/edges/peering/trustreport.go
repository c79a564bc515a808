package peering

import (
	"crypto/sha256"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// mostLacking bounds the apps in a report of trust.
const mostLacking = 100

// SetTrust has each peer told how far this cluster trusts it, where that has changed. A nil report
// leaves what it was told.
func (l *Links) SetTrust(from func(cluster string) *v1alpha1.TrustReport) {
	l.mu.Lock()
	all := make(map[string]*runningLink, len(l.links))
	for cluster, r := range l.links {
		all[cluster] = r
	}
	l.mu.Unlock()
	for cluster, r := range all {
		next := from(cluster)
		if next == nil {
			continue
		}
		next.Lacking = next.Lacking[:min(len(next.Lacking), mostLacking)]
		if !proto.Equal(r.trust.Load(), next) {
			r.trust.Store(next)
			r.tell()
		}
	}
}

var errAnew = errors.New("the connection is made anew, to see the certificate that the peer has by now")

// Reconnect makes the connection anew that carries a cluster's exports. Its other connections stay,
// so no lease runs out.
func (l *Links) Reconnect(cluster string) {
	l.mu.Lock()
	r := l.links[cluster]
	l.mu.Unlock()
	if r == nil {
		return
	}
	r.status.mu.Lock()
	defer r.status.mu.Unlock()
	for stream := range r.status.streams {
		if stream.primary {
			stream.cancel(errAnew)
		}
	}
}

// cleanReport makes what a peer reports fit to be kept and shown.
func cleanReport(m *v1alpha1.TrustReport) *v1alpha1.TrustReport {
	clean := &v1alpha1.TrustReport{Shared: m.GetShared(), Accepts: m.GetAccepts(), Refused: catalog.Printable(catalog.Clip(m.GetRefused(), maxName))}
	for _, sum := range m.GetRoots()[:min(len(m.GetRoots()), api.MaxRoots)] {
		if len(sum) == sha256.Size {
			clean.Roots = append(clean.Roots, slices.Clone(sum))
		}
	}
	for _, one := range m.GetLacking()[:min(len(m.GetLacking()), mostLacking)] {
		a := &v1alpha1.LackingApp{Sidecars: one.GetSidecars(), Silent: one.GetSilent(), Meets: true}
		if app, err := wire.ParseApp(one.GetApp()); err == nil {
			a.App = wire.App(app)
		}
		clean.Lacking = append(clean.Lacking, a)
	}
	return clean
}

// TrustReports returns how far each peer that follows this cluster trusts it, as it says: a report
// of each of its replicas.
func (s *Server) TrustReports() map[string][]*v1alpha1.TrustReport {
	all := map[string][]*v1alpha1.TrustReport{}
	s.wants.Range(func(stream, cluster any) bool {
		if said := stream.(*wants).trust.Load(); said != nil {
			all[cluster.(string)] = append(all[cluster.(string)], said)
		}
		return true
	})
	return all
}
