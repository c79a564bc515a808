package answers

import (
	"context"
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
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
)

// Check makes all checks, and sends results as they come.
func (s Status) Check(req *v1alpha1.CheckRequest, to grpc.ServerStreamingServer[v1alpha1.CheckResponse]) error {
	now := s.Now()
	limit, err := limitOf(req, now)
	if err != nil {
		return err
	}
	err = to.Send(&v1alpha1.CheckResponse{Cluster: now.GetCluster(), Version: now.GetVersion(), NowUnixMs: time.Now().UnixMilli()})
	if err != nil {
		return err
	}
	facts, err := s.Facts(to.Context(), now, limit)
	if err != nil {
		return err
	}
	return check.Run(to.Context(), facts, func(results []check.Result) error {
		return to.Send(&v1alpha1.CheckResponse{Results: check.Messages(results)})
	})
}

// Limit is what checks are limited to; zero: nothing.
type Limit struct {
	Peer string
	App  catalog.App
}

// limitOf reads a request.
func limitOf(req *v1alpha1.CheckRequest, all *v1alpha1.StatusResponse) (l Limit, err error) {
	l.Peer = req.GetPeer()
	if l.Peer != "" && !slices.ContainsFunc(all.GetPeers(), func(p *v1alpha1.PeerStatus) bool { return p.GetCluster() == l.Peer }) {
		return l, status.Errorf(codes.NotFound, "no Cluster object with gateways is named %q; isthmus get clusters lists them", l.Peer)
	}
	if a := req.GetApp(); a != nil {
		if l.App, err = wire.ParseApp(a); err != nil {
			return l, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	return l, nil
}

// Checks gathers what checks read.
type Checks struct {
	Inventory *Inventory
	Objects   *objects.Server
	Store     configstore.ReadWriter
	Accounts  *check.Accounts
	Namespace string // of Isthmus' own apps
	Domain    catalog.Domain
	// Bundle reads the roots that the service follows anew; nil: it follows none.
	Bundle func(context.Context) (name string, roots []string, err error)
	// Zone asks the machine's resolver for the zone; nil where pods need not know it.
	Zone func(context.Context) error
}

// Facts are what checks read, as this service publishes it, with its status of now.
func (c *Checks) Facts(ctx context.Context, now *v1alpha1.StatusResponse, limit Limit) (*check.Facts, error) {
	v := c.Inventory
	f := &check.Facts{
		Now: time.Now(), Status: now, Peer: limit.Peer, App: limit.App, Prober: check.NewProber(v.Identity, c.Namespace, c.Domain), Bundle: c.Bundle, Zone: c.Zone,
		MayWrite: func(ctx context.Context) error { return configstore.MayWrite(ctx, c.Store) },
	}
	f.Lacks, f.LacksErr = c.Accounts.Lacking(ctx)
	f.Faults = v.Health.Faults(f.Now)
	f.Definitions, f.Vouching = definitions(ctx, c.Store), v.Identity.Vouching()
	if v.Identity.HasSentry() {
		f.Sentry = v.Identity.CheckSentry
	}
	for _, one := range v.Stream.Sidecars(func(catalog.App) bool { return true }) {
		f.Sidecars = append(f.Sidecars, check.Sidecar{SidecarState: sidecarToWire(&one), LeadsTo: one.LeadsTo})
	}
	if _, ready := v.Topology.Ready().Load(); !ready {
		return f, nil // the checks of the store say why
	}
	analysis, err := c.Objects.Analyze(ctx, &v1alpha1.AnalyzeRequest{})
	if err != nil {
		return nil, fmt.Errorf("analyze objects: %w", err)
	}
	f.Findings = analysis.GetFindings()
	bridges, err := v.Topology.Inventory().Bridges(ctx)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	for i := range bridges {
		f.Bridges = append(f.Bridges, appToWire(&bridges[i]))
	}
	apps, err := v.Topology.Inventory().Apps(ctx)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if f.Peer != "" {
		offered, err := v.Topology.Inventory().Offered(ctx, f.Peer)
		if err != nil {
			return nil, status.FromContextError(err).Err()
		}
		apps = append(apps, offered...)
	}
	if f.App != (catalog.App{}) && !slices.Contains(apps, f.App) {
		apps = append(apps, f.App)
	}
	err = v.appStates(ctx, apps, func(some []*v1alpha1.AppState) error {
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
		f.Callees = v.calleesOf(f.App)
	}
	f.Limit()
	return f, err
}

// calleesOf are the apps that an app's view holds, in order; of an app without a selection, none: it may
// call all that are there.
func (v *Inventory) calleesOf(app catalog.App) (all []check.Callee) {
	sub := v.Topology.Subscribe(app)
	defer sub.Close()
	view, ok := sub.View()
	if !ok || view.Open {
		return nil
	}
	for _, entry := range view.Entries.All() {
		all = append(all, check.Callee{App: entry.App, Decision: entry.Explain()})
	}
	slices.SortFunc(all, func(a, b check.Callee) int { return a.App.Compare(b.App) })
	return all
}

// definitions is how the custom resources are, where the store has some.
func definitions(ctx context.Context, of configstore.ReadWriter) *check.Definitions {
	store, ok := of.(*kubernetes.Store)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, check.Within)
	defer cancel()
	d, err := store.Definitions(ctx)
	return &check.Definitions{Missing: d.Missing, Lacking: d.Lacking, Unknown: d.Unknown, Err: err}
}
