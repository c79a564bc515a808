package stream

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
)

// fault says why a caller's calls to a callee by the route to a cluster fail: what is wrong with them,
// and what its sidecars here show: those without mTLS, those that trust no root of the cluster, and
// those that report that they don't reach it. It is empty if nothing is known.
func (s *Server) fault(caller, callee catalog.App, cluster string, local bool) string {
	if caller == callee {
		return ""
	}
	var faults []string
	if s.cfg.Faults != nil {
		for _, f := range callhealth.Between(s.cfg.Faults(time.Now()), caller, callee) {
			if in := f.GetCluster(); f.GetLevel() == callhealth.Fail && (in == cluster || in == "" || local && in == catalog.LocalCluster) {
				faults = append(faults, f.GetWhat())
			}
		}
	}
	if local {
		return strings.Join(faults, "; ")
	}
	all := s.Sidecars(func(a catalog.App) bool { return a == caller })
	say := func(n int, what string) {
		if n > 0 {
			faults = append(faults, fmt.Sprintf("%d of %d sidecars of %s %s", n, len(all), caller, what))
		}
	}
	say(countSidecars(all).plainText, "are without mTLS, and can't pass a gateway; start daprd with --enable-mtls")
	if s.cfg.Roots != nil {
		lack, roots := 0, s.cfg.Roots(cluster)
		for i := range all {
			if len(roots) > 0 && identity.LacksRoots(all[i].Anchors, roots) {
				lack++
			}
		}
		say(lack, fmt.Sprintf("trust no root of cluster %s; add its roots to the trust anchors of Dapr's sidecars here, and restart these", cluster))
	}
	by, u := s.evidence.unreachedBy(caller, callee, cluster)
	what := "don't reach it"
	if u.app != (catalog.App{}) {
		what = "reach its gateway, and not " + callee.String() + " there"
	}
	say(by, fmt.Sprintf("%s for %s: %s", what, max(time.Second, time.Since(u.since)).Round(time.Second), cmp.Or(u.why, "no reason")))
	return strings.Join(faults, "; ")
}

// unreachedBy counts the sidecars of a caller that reach nothing of a cluster, or not a callee there,
// and returns the oldest of their reports.
func (e *evidence) unreachedBy(caller, callee catalog.App, cluster string) (by int, oldest unreached) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.callers {
		if c.app != caller {
			continue
		}
		view, _ := c.view()
		whole, any := c.unreachedOf(cluster, view)
		counted := false
		for _, u := range c.reports {
			if !any || u.cluster != cluster || u.app != callee && !(whole && u.app == catalog.App{}) {
				continue
			}
			counted = true
			if oldest.since.IsZero() || u.since.Before(oldest.since) {
				oldest = u
			}
		}
		if counted {
			by++
		}
	}
	return by, oldest
}
