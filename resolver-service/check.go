package resolverservice

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/trustbundle"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// Check makes all checks, and sends results as they come.
func (s statusServer) Check(req *v1alpha1.CheckRequest, to grpc.ServerStreamingServer[v1alpha1.CheckResponse]) error {
	now := s.status()
	limit, err := limitOf(req, now)
	if err != nil {
		return err
	}
	err = to.Send(&v1alpha1.CheckResponse{Cluster: now.GetCluster(), Version: now.GetVersion(), NowUnixMs: time.Now().UnixMilli()})
	if err != nil {
		return err
	}
	facts, err := s.facts(to.Context(), now, limit)
	if err != nil {
		return err
	}
	return check.Run(to.Context(), facts, func(results []check.Result) error {
		m := &v1alpha1.CheckResponse{}
		for _, r := range results {
			m.Results = append(m.Results, &v1alpha1.CheckResult{Check: r.Check, Level: string(r.Level), Kind: r.Kind, Name: r.Name, Found: r.Found, Fix: r.Fix})
		}
		return to.Send(m)
	})
}

// checkLimit is what checks are limited to; zero: nothing.
type checkLimit struct {
	peer string
	app  catalog.App
}

// limitOf reads a request.
func limitOf(req *v1alpha1.CheckRequest, all *v1alpha1.StatusResponse) (l checkLimit, err error) {
	l.peer = req.GetPeer()
	if l.peer != "" && !slices.ContainsFunc(all.GetPeers(), func(p *v1alpha1.PeerStatus) bool { return p.GetCluster() == l.peer }) {
		return l, status.Errorf(codes.NotFound, "no Cluster object with gateways is named %q; isthmus get clusters lists them", l.peer)
	}
	if a := req.GetApp(); a != nil {
		if l.app, err = wire.ParseApp(a); err != nil {
			return l, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	return l, nil
}

// facts are what checks read, as this service publishes it.
func (s *Service) facts(ctx context.Context, now *v1alpha1.StatusResponse, limit checkLimit) (*check.Facts, error) {
	f := &check.Facts{
		Now: time.Now(), Status: now, MayWrite: s.mayWrite, Peer: limit.peer, App: limit.app,
		Prober: check.NewProber(s.identity, s.cfg.Identity.Namespace, catalog.Domain(s.cfg.Domain)),
	}
	f.Lacks, f.LacksErr = s.accounts.Lacking(ctx)
	f.Faults = s.health.Faults(f.Now)
	f.Definitions, f.Vouching, f.Bundle = s.definitions(ctx), s.identity.Vouching(), s.bundle()
	if s.identity.HasSentry() {
		f.Sentry = s.identity.CheckSentry
	}
	all := func(catalog.App) bool { return true }
	for _, one := range s.resolver.stream.Sidecars(all) {
		f.Sidecars = append(f.Sidecars, check.Sidecar{SidecarState: sidecarToWire(&one), LeadsTo: one.LeadsTo})
	}
	if _, ready := s.topology.Ready().Load(); !ready {
		return f, nil // the checks of the store say why
	}
	analysis, err := s.resolver.objects.Analyze(ctx, &v1alpha1.AnalyzeRequest{})
	if err != nil {
		return nil, fmt.Errorf("analyze objects: %w", err)
	}
	f.Findings = analysis.GetFindings()
	err = everyApp(ctx, s.topology, func(some []*v1alpha1.AppState) error {
		for _, a := range some {
			if len(a.GetExportedTo()) > 0 {
				f.Exported = append(f.Exported, a)
			}
			if slices.ContainsFunc(a.GetImports(), func(i *v1alpha1.ExportState) bool { return i.GetCluster() == f.Peer && i.GetReady() > 0 }) {
				f.Imported = append(f.Imported, a)
			}
			if a.GetApp().GetNamespace() == f.App.Namespace && a.GetApp().GetId() == f.App.ID {
				f.State = a
			}
		}
		return nil
	})
	if f.App != (catalog.App{}) {
		f.Callees = s.callees(f.App)
	}
	f.Limit()
	return f, err
}

// callees are the apps that an app's view holds, in order; of an app without a selection, none: it may
// call all that are there.
func (s *Service) callees(app catalog.App) (all []check.Callee) {
	view, ok := s.view(app)
	if !ok || view.Open {
		return nil
	}
	for callee, entry := range view.Entries.All() {
		all = append(all, check.Callee{App: callee, Decision: entry.Explain()})
	}
	slices.SortFunc(all, func(a, b check.Callee) int { return a.App.Compare(b.App) })
	return all
}

// mayWrite is the error of a store that can't be written, as far as that shows without a write.
func (s *Service) mayWrite(ctx context.Context) error {
	if prober, ok := s.store.(configstore.Prober); ok {
		return prober.MayWrite(ctx)
	}
	return nil
}

// definitions is how the custom resources are, where the store has some.
func (s *Service) definitions(ctx context.Context) *check.Definitions {
	store, ok := s.store.(*kubernetes.Store)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, check.Within)
	defer cancel()
	d, err := store.Definitions(ctx)
	return &check.Definitions{Missing: d.Missing, Lacking: d.Lacking, Unknown: d.Unknown, Err: err}
}

// bundle reads the ConfigMap that the service follows anew; nil if it follows none.
func (s *Service) bundle() func(context.Context) (string, []string, error) {
	from := s.cfg.Identity.TrustAnchorsFrom
	if from == nil {
		return nil
	}
	return func(ctx context.Context) (string, []string, error) {
		bundle, err := trustbundle.New(*from, cmp.Or(s.cfg.Identity.Sentry.Namespace, "default"), s.log)
		if err != nil {
			return "ConfigMap " + from.ConfigMap, nil, err
		}
		defer bundle.Close()
		text, err := bundle.Read(ctx)
		var roots []string
		for _, sum := range identity.Fingerprints(text) {
			roots = append(roots, hex.EncodeToString(sum))
		}
		return bundle.String(), roots, err
	}
}
