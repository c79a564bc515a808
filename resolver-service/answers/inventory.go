// Package answers is what the service answers operators and bridges with: apps, sidecars, calls,
// the graph, policies, status, checks and support. It reads what the other rooms publish, and
// changes nothing.
package answers

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/traffic"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Inventory is the service Inventory.
type Inventory struct {
	v1alpha1.UnimplementedInventoryServer
	Topology *topology.Topology
	Stream   *stream.Server
	Health   *callhealth.Health
	Calling  *traffic.Store
	Replicas *Replicas // nil: there are no others
	Ring     *events.Ring
	Identity *identity.Source
	Writer   func() policies.Writer
	Stopping context.Context // ends streams that follow
}

// perMessage is how many apps or sidecars one message has.
const perMessage = 500

// sendParts sends a list in several messages, each of at most so many of it.
func sendParts[T, M any](to grpc.ServerStreamingServer[M], all []T, most int, message func(some []T) (*M, error)) error {
	for some := range slices.Chunk(all, most) {
		m, err := message(some)
		if err == nil {
			err = to.Send(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wants is the filter of a request.
func wants(namespace, id string) func(catalog.App) bool {
	filter := &v1alpha1.App{Namespace: namespace, Id: id}
	return func(app catalog.App) bool { return wire.Passes(filter, app) }
}

// searches is the filter of a request for a list.
func searches(req interface {
	GetNamespace() string
	GetId() string
	GetSearch() string
}) func(catalog.App) bool {
	wants := wants(req.GetNamespace(), req.GetId())
	return func(app catalog.App) bool { return wants(app) && strings.Contains(app.String(), req.GetSearch()) }
}

// Apps lists apps.
func (v *Inventory) Apps(req *v1alpha1.AppsRequest, to grpc.ServerStreamingServer[v1alpha1.AppsResponse]) error {
	apps, err := v.Topology.Inventory().Apps(to.Context())
	if err != nil {
		return err
	}
	offered, err := v.Topology.Inventory().Offered(to.Context(), "")
	if err != nil {
		return err
	}
	filter := searches(req)
	unwanted := func(app catalog.App) bool { return !filter(app) }
	apps, offered = slices.DeleteFunc(apps, unwanted), slices.DeleteFunc(offered, unwanted)
	leftOut := uint32(0)
	if req.GetWithoutNamed() {
		leftOut = uint32(len(offered))
	} else if len(offered) > 0 {
		apps = append(apps, offered...)
		slices.SortFunc(apps, catalog.App.Compare)
	}
	matched := uint32(len(apps))
	if req.GetAfter() != nil {
		at, found := slices.BinarySearchFunc(apps, wire.AppOf(req.GetAfter()), catalog.App.Compare)
		if found {
			at++
		}
		apps = apps[at:]
	}
	if most := int(req.GetMost()); most > 0 {
		apps = apps[:min(most, len(apps))]
	}
	if matched+leftOut > 0 && len(apps) == 0 {
		return to.Send(&v1alpha1.AppsResponse{Matched: matched, LeftOut: leftOut})
	}
	faults := map[catalog.App][]*v1alpha1.CallFault{}
	for _, f := range v.Health.Faults(time.Now()) {
		faults[wire.AppOf(f.GetCallee())] = append(faults[wire.AppOf(f.GetCallee())], f)
	}
	return v.appStates(to.Context(), apps, func(some []*v1alpha1.AppState) error {
		for _, a := range some {
			a.Faults = faults[wire.AppOf(a.GetApp())]
		}
		m := &v1alpha1.AppsResponse{Apps: some, Matched: matched, LeftOut: leftOut}
		matched, leftOut = 0, 0
		return to.Send(m)
	})
}

// perQuestion is how many apps the topology is asked about at a time.
const perQuestion = 4000

// appStates hands on apps, at most perMessage at a time.
func (v *Inventory) appStates(ctx context.Context, apps []catalog.App, take func([]*v1alpha1.AppState) error) error {
	for asked := range slices.Chunk(apps, perQuestion) {
		states, err := v.Topology.Inventory().AppStates(ctx, asked)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(states, perMessage) {
			all := make([]*v1alpha1.AppState, len(some))
			for i := range some {
				all[i] = appToWire(&some[i])
			}
			if err := take(all); err != nil {
				return err
			}
		}
	}
	return nil
}

func appToWire(s *topology.AppState) *v1alpha1.AppState {
	m := &v1alpha1.AppState{
		App: wire.App(s.App), Ready: s.Ready, Draining: s.Draining, ExportedTo: s.ExportedTo, Callers: uint32(s.Callers), Selection: s.Selection,
	}
	for _, i := range s.Instances {
		w := &v1alpha1.InstanceState{Source: i.Source, Id: i.ID, Address: i.Address.String(), Draining: i.Draining, Zone: i.Zone, Version: i.Version}
		if i.TakenBy != (catalog.App{}) {
			w.TakenBy = wire.App(i.TakenBy)
		}
		m.Instances = append(m.Instances, w)
	}
	for _, i := range s.Imports {
		m.Imports = append(m.Imports, &v1alpha1.ExportState{Cluster: i.Cluster, Ready: i.Ready, Stale: i.Stale, Versions: i.Versions, Named: i.Named})
	}
	return m
}

// Sidecars lists the clients of this replica.
func (v *Inventory) Sidecars(req *v1alpha1.SidecarsRequest, to grpc.ServerStreamingServer[v1alpha1.SidecarsResponse]) error {
	page, matched, err := v.Stream.SidecarPage(searches(req), req.GetAfter(), int(req.GetMost()))
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "after: %v", err)
	}
	if matched > 0 && len(page) == 0 {
		return to.Send(&v1alpha1.SidecarsResponse{Matched: uint32(matched)})
	}
	return sendParts(to, page, perMessage, func(some []stream.Sidecar) (*v1alpha1.SidecarsResponse, error) {
		m := &v1alpha1.SidecarsResponse{Matched: uint32(matched)}
		matched = 0
		for i := range some {
			m.Sidecars = append(m.Sidecars, sidecarToWire(&some[i]))
		}
		return m, nil
	})
}

// Certified are the clients of this replica, with the certificates that they show.
func (v *Inventory) Certified() (all []*v1alpha1.CertifiedSidecar) {
	every := v.Stream.Sidecars(func(catalog.App) bool { return true })
	for i := range every {
		one := &v1alpha1.CertifiedSidecar{Sidecar: sidecarToWire(&every[i])}
		if chain := every[i].Chain; len(chain) > 0 {
			one.SignedBy, one.FromUnixMs, one.UntilUnixMs = v.Identity.SignedBy(chain), chain[0].NotBefore.UnixMilli(), chain[0].NotAfter.UnixMilli()
		}
		all = append(all, one)
	}
	return all
}

func sidecarToWire(s *stream.Sidecar) *v1alpha1.SidecarState {
	m := &v1alpha1.SidecarState{
		App: wire.App(s.App), Instance: s.Instance, State: string(s.State), Unwell: s.Unwell, Zone: s.Zone, AppVersion: s.AppVersion, SinceUnixMs: s.Since.UnixMilli(),
		Version: s.Version, Runtime: s.Runtime, Identity: s.Identity, Revision: s.Revision, Delivered: s.Delivered, NewestRevision: s.Newest, PlainText: s.PlainText, TrustAnchors: s.Anchors, Position: s.Position,
	}
	if s.Address.IsValid() {
		m.Address = s.Address.String()
	}
	if s.Source.IsValid() {
		m.Source = s.Source.String()
	}
	return m
}

// Events streams the latest events.
func (v *Inventory) Events(req *v1alpha1.EventsRequest, to grpc.ServerStreamingServer[v1alpha1.EventsResponse]) error {
	from := time.UnixMilli(req.GetSinceUnixMs())
	for seen := uint64(0); ; {
		_, _, more := v.Ring.Latest().Follow()
		all := v.Ring.After(seen, from)
		for some := range slices.Chunk(all, perMessage) {
			m := &v1alpha1.EventsResponse{}
			for i := range some {
				m.Events = append(m.Events, some[i].Wire())
			}
			if err := to.Send(m); err != nil {
				return err
			}
			seen = some[len(some)-1].Number
		}
		if !req.GetFollow() {
			return nil
		}
		select {
		case <-more:
		case <-v.Stopping.Done():
			return context.Cause(v.Stopping)
		case <-to.Context().Done():
			return context.Cause(to.Context())
		}
	}
}
