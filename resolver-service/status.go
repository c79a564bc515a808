package resolverservice

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// statusServer is the service Status.
type statusServer struct {
	v1alpha1.UnimplementedStatusServer
	status func() *v1alpha1.StatusResponse
	facts  func(context.Context, *v1alpha1.StatusResponse, checkLimit) (*check.Facts, error)
	files  []supportFile
}

// Status tells how the service is.
func (s statusServer) Status(context.Context, *v1alpha1.StatusRequest) (*v1alpha1.StatusResponse, error) {
	return s.status(), nil
}

// status is how the service is: for operators, for metrics and for health.
func (s *Service) status() *v1alpha1.StatusResponse {
	stats := s.topology.Stats()
	answer := &v1alpha1.StatusResponse{
		Cluster: s.cfg.Cluster, Version: s.cfg.Version, Domain: s.cfg.Domain,
		Revision: s.topology.Revision(), Peers: s.links.Status(),
		Apps: uint32(stats.Apps), Instances: uint32(stats.Instances), Draining: uint32(stats.Draining),
		Streams: uint32(s.resolver.streams.Load()), Exports: uint32(stats.Exports), Objects: uint32(stats.Objects),
		StartedUnixMs: s.started.UnixMilli(),
	}
	s.addStore(answer)
	s.addIdentity(answer)
	s.addTrust(answer)
	answer.Replica = s.cfg.replica()
	answer.Sources = append(answer.Sources, &v1alpha1.SourceStatus{Name: stream.Source, Ready: true, Instances: uint32(s.resolver.stream.Instances())})
	s.edges.addStatus(answer)
	s.sources.addStatus(answer)
	s.addRefusals(answer)
	s.addUnreached(answer)
	if s.cutOff != nil {
		s.cutOff.addStatus(answer)
	}
	s.addCallFaults(answer)
	answer.Problems = s.problems.all()
	s.addPolicies(answer)
	return answer
}

func (s *Service) addStore(answer *v1alpha1.StatusResponse) {
	feed := s.feed.Status()
	_, ready := s.topology.Ready().Load()
	answer.Store = &v1alpha1.StoreStatus{Name: s.cfg.Store.Name(), Path: s.cfg.Store.Path(), Ready: ready, Version: string(feed.Version)}
	if feed.Err != nil {
		answer.Store.Error, answer.Store.FailingUnixMs = feed.Err.Error(), feed.Since.UnixMilli()
	}
	for _, r := range feed.Refused {
		answer.Refused = append(answer.Refused, &v1alpha1.RefusedObject{Source: r.Where, Error: r.Err.Error()})
	}
}

// addUnreached adds what sidecars say of the way to peers.
func (s *Service) addUnreached(answer *v1alpha1.StatusResponse) {
	all := s.resolver.stream.Unreached()
	for _, p := range answer.Peers {
		if u, ok := all[p.GetCluster()]; ok {
			p.UnreachedBy, p.Callers, p.UnreachedWhy = uint32(u.By), uint32(u.Callers), u.Why
			p.UnreachedSinceUnixMs = time.Now().Add(-time.Since(u.Since)).UnixMilli()
		}
	}
}

func (s *Service) addIdentity(answer *v1alpha1.StatusResponse) {
	if err := s.identity.Err(); err != nil {
		answer.IdentityError = err.Error()
	}
	if err := s.identity.Ready(); err != nil {
		answer.IdentityError = err.Error()
		return
	}
	answer.Identity = "insecure"
	if id, ok := s.identity.ID(); ok {
		answer.Identity = id.String()
	}
}

func (s *Service) addTrust(answer *v1alpha1.StatusResponse) {
	for _, t := range slices.Concat(s.identity.Trusted(), s.edges.trusted(), s.files.trusted()) {
		w := &v1alpha1.TrustStatus{
			Use: t.Use, Cluster: t.Cluster, Subject: t.Subject, TrustDomain: t.TrustDomain, Fingerprint: t.Fingerprint,
		}
		if t.Fingerprint != "" {
			w.NotBeforeUnixMs, w.NotAfterUnixMs = t.NotBefore.UnixMilli(), t.NotAfter.UnixMilli()
		}
		if t.Err != nil {
			w.Error = t.Err.Error()
		}
		answer.Trust = append(answer.Trust, w)
	}
}

// peerRoots are the SHA-256 of the roots that a Cluster object names, in hexadecimal.
func (s *Service) peerRoots(cluster string) (all []string) {
	for _, t := range s.identity.Trusted() {
		if t.Use == identity.PeerRoot && t.Cluster == cluster && t.Fingerprint != "" {
			all = append(all, t.Fingerprint)
		}
	}
	return all
}

// revisionAge knows when the revision last changed, to the second.
type revisionAge struct {
	mu      sync.Mutex
	changed time.Time
}

// since is the time since the last change.
func (a *revisionAge) since() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed.IsZero() {
		return 0
	}
	return time.Since(a.changed)
}

// run looks at the revision every second until ctx ends.
func (a *revisionAge) run(ctx context.Context, revision func() uint64) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for last := uint64(0); ; {
		if now := revision(); now != last {
			last = now
			a.mu.Lock()
			a.changed = time.Now()
			a.mu.Unlock()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
