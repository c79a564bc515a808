package peering

import (
	"maps"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
)

// mostWanted bounds the apps that a cluster says it misses.
const mostWanted = 100

// SetWanted has each peer told what callers here miss of it, where that has changed.
func (l *Links) SetWanted(from func(cluster string) []*v1alpha1.WantedApp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for cluster, r := range l.links {
		all := from(cluster)
		next := &v1alpha1.Wanted{Apps: all[:min(len(all), mostWanted)]}
		if old := r.wanted.Load(); !proto.Equal(old, next) && (old != nil || len(next.Apps) > 0) {
			r.wanted.Store(next)
			r.tell()
		}
	}
}

// wants is what the peer of one stream misses, and how far it trusts this cluster, as it says.
type wants struct {
	apps  atomic.Pointer[[]callhealth.WantedApp]
	trust atomic.Pointer[v1alpha1.TrustReport]
	rests atomic.Uint32 // in ms; 0: the peer does not rest

	offers atomic.Bool            // it says that it exports something else, which nobody was told
	nudged atomic.Pointer[func()] // is told; nil until the peer is known to be who it says
}

// tellNudge tells of a nudge, once the peer is known.
func (w *wants) tellNudge() {
	if nudged := w.nudged.Load(); nudged != nil && w.offers.Swap(false) {
		(*nudged)()
	}
}

// take takes in a request. What can't be an app is left out.
func (w *wants) take(m *v1alpha1.ExportsRequest) {
	if m.GetPing() != 0 { // not nothing, as at the end of the stream
		w.rests.Store(m.GetRestsMs())
	}
	if m.GetOffersChanged() {
		w.offers.Store(true)
		w.tellNudge()
	}
	if m.GetTrust() != nil {
		w.trust.Store(cleanReport(m.Trust))
	}
	if m.GetWanted() == nil {
		return
	}
	var all []callhealth.WantedApp
	for _, a := range m.Wanted.Apps[:min(len(m.Wanted.Apps), mostWanted)] {
		app, err := wire.ParseApp(a.GetApp())
		caller, callerErr := wire.ParseApp(a.GetCaller())
		if err == nil && callerErr == nil {
			all = append(all, callhealth.WantedApp{App: app, Caller: caller})
		}
	}
	w.apps.Store(&all)
}

// Wanted returns what each peer misses of this cluster, as it says: its operators alone are told.
func (s *Server) Wanted() map[string][]callhealth.WantedApp {
	apps := map[string]map[catalog.App]callhealth.WantedApp{} // replicas of a peer say the same
	s.wants.Range(func(stream, cluster any) bool {
		said, name := stream.(*wants).apps.Load(), cluster.(string)
		if said == nil {
			return true
		}
		if apps[name] == nil {
			apps[name] = map[catalog.App]callhealth.WantedApp{}
		}
		for _, w := range *said {
			apps[name][w.App] = w
		}
		return true
	})
	all := map[string][]callhealth.WantedApp{}
	for cluster, some := range apps {
		all[cluster] = slices.SortedFunc(maps.Values(some), func(a, b callhealth.WantedApp) int { return a.App.Compare(b.App) })
	}
	return all
}
