package resolverservice

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

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
	s.tunnels.addStatus(answer.Peers)
	s.heard.AddStatus(answer.Peers)
	if s.cutOff != nil {
		s.cutOff.AddStatus(answer)
	}
	s.health.AddStatus(answer)
	s.replicas.AddStatus(answer)
	answer.Problems = s.problems.All()
	if s.policies != nil {
		s.policies.AddStatus(answer)
	}
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

// mostRefusals is how many apps with addresses that may not be used a status names.
const mostRefusals = 100

// refusalsWithin is how long a status waits for them.
const refusalsWithin = time.Second

// addRefusals adds the apps with addresses that may not be used.
func (s *Service) addRefusals(answer *v1alpha1.StatusResponse) {
	ctx, cancel := context.WithTimeout(context.Background(), refusalsWithin)
	defer cancel()
	all, err := s.topology.Inventory().Refusals(ctx, mostRefusals)
	if err != nil {
		return // it does not run yet, or is busy: the next status has them
	}
	exports := &v1alpha1.SourceStatus{Name: "exports", Ready: true}
	for _, r := range all {
		refused := &v1alpha1.RefusedObject{Source: "AppExport " + r.App.String(), Error: "not exported: " + r.String()}
		if r.Cluster == "" {
			exports.Refused = append(exports.Refused, refused)
			continue
		}
		refused = &v1alpha1.RefusedObject{Source: r.App.String(), Error: "not called without a gateway: " + r.String()}
		for _, p := range answer.Peers {
			if p.Cluster == r.Cluster {
				p.Refused = append(slices.Clip(p.Refused), refused) // it is the link's
			}
		}
	}
	if exports.RefusedCount = uint32(len(exports.Refused)); exports.RefusedCount > 0 {
		answer.Sources = append(answer.Sources, exports)
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
	for _, t := range slices.Concat(s.identity.Trusted(), s.edges.trusted(), s.files.Trusted()) {
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

// ownDomains are the trust domains of this cluster, the service's own first; none when insecure.
func (s *Service) ownDomains() (all []string, known bool) {
	own, known := s.identity.Domain()
	if own != "" {
		all = append(all, own)
	}
	return append(all, s.cfg.Identity.TrustDomains...), known
}
