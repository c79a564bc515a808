package answers

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	counts "github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/traffic"
)

// trafficWindow is the time that is told of where a request names none.
const trafficWindow = time.Minute

// mostTimeSteps bounds the steps of one answer, and mostShares the pairs whose shares are worked
// out.
const (
	mostTimeSteps = 400
	mostShares    = 500
)

// Traffic tells of calls in the time before now.
func (v *Inventory) Traffic(req *v1alpha1.TrafficRequest, to grpc.ServerStreamingServer[v1alpha1.TrafficResponse]) error {
	window, step := time.Duration(req.GetWindowMs())*time.Millisecond, time.Duration(req.GetStepMs())*time.Millisecond
	if window == 0 {
		window = trafficWindow
	}
	switch {
	case window < traffic.Short || window > traffic.Kept:
		return status.Errorf(codes.InvalidArgument, "window: %s; want %s to %.0fh", window, traffic.Short, traffic.Kept.Hours())
	case step != 0 && (step < traffic.Short || window/step > mostTimeSteps):
		return status.Errorf(codes.InvalidArgument, "step: %s; want %s or more, and at most %d in a window", step, traffic.Short, mostTimeSteps)
	}
	q := traffic.Query{Window: window, Step: step, Wants: wantsEdge(req)}
	if req.GetForReplica() != "" {
		return v.ownTraffic(req, q, to)
	}
	now := time.Now()
	parts, missing := v.othersTraffic(to.Context(), req, now)
	parts = append(parts, v.Calling.Own(q, now))
	all, from, until := traffic.Together(v.Calling.Cluster(), parts...)
	m := &v1alpha1.TrafficResponse{
		FromUnixMs: from.UnixMilli(), ToUnixMs: until.UnixMilli(), WholeFromUnixMs: traffic.Whole(parts...).UnixMilli(), Matched: uint32(len(all)), Missing: missing,
	}
	if most := int(req.GetMost()); most > 0 {
		all = all[:min(most, len(all))]
	}
	if len(all) == 0 {
		return to.Send(m)
	}
	shares := v.sharesOf(all)
	faults := v.Health.Faults(now)
	return sendEdges(to, m, all, func(t *traffic.Traffic) *v1alpha1.TrafficEdge {
		return v.edge(t, until.Sub(from), shares, faults)
	})
}

// wantsEdge is the filter of a request.
func wantsEdge(req *v1alpha1.TrafficRequest) func(traffic.Edge) bool {
	caller, callee := wants(req.GetCaller().GetNamespace(), req.GetCaller().GetId()), wants(req.GetCallee().GetNamespace(), req.GetCallee().GetId())
	return func(e traffic.Edge) bool {
		return caller(e.Caller) && callee(e.Callee) && (req.GetCluster() == "" || req.GetCluster() == e.Cluster)
	}
}

// sendEdges sends a first message with some of the edges, and further ones with the rest.
func sendEdges(to grpc.ServerStreamingServer[v1alpha1.TrafficResponse], m *v1alpha1.TrafficResponse, all []traffic.Traffic, edge func(*traffic.Traffic) *v1alpha1.TrafficEdge) error {
	for {
		some := all[:min(perMessage, len(all))]
		for i := range some {
			m.Edges = append(m.Edges, edge(&some[i]))
		}
		if err := to.Send(m); err != nil {
			return err
		}
		if all = all[len(some):]; len(all) == 0 {
			return nil
		}
		m = &v1alpha1.TrafficResponse{FromUnixMs: m.GetFromUnixMs(), ToUnixMs: m.GetToUnixMs()}
	}
}

// pair is a caller here and its callee.
type pair struct{ caller, callee catalog.App }

// shares are how many calls a pair makes, and where they should go. Callers of other clusters have none
// here: their own service tells them where to call.
type shares struct {
	calls   uint64
	wanted  map[string]float64 // by cluster, of 1; nil: unknown
	running map[string]string  // the versions of the callee's instances, by cluster
}

func (v *Inventory) sharesOf(all []traffic.Traffic) map[pair]*shares {
	of := map[pair]*shares{}
	for i := range all {
		t := &all[i]
		if t.ByCallee {
			continue
		}
		s := of[pair{t.Caller, t.Callee}]
		if s == nil {
			s = &shares{}
			if len(of) < mostShares {
				s.wanted, s.running = map[string]float64{}, map[string]string{}
				for _, r := range v.Topology.Resolve(t.Caller, t.Callee).Routes {
					s.wanted[r.Cluster] += r.Share / 100
					s.running[r.Cluster] = r.Running
				}
			}
			of[pair{t.Caller, t.Callee}] = s
		}
		s.calls += t.Calls()
	}
	return of
}

// edge is the message of an edge, over a time.
func (v *Inventory) edge(t *traffic.Traffic, over time.Duration, shares map[pair]*shares, faults []*v1alpha1.CallFault) *v1alpha1.TrafficEdge {
	m := edgeToWire(t)
	t.Counts.SumUp(m, over)
	if s := shares[pair{t.Caller, t.Callee}]; s != nil && !t.ByCallee {
		if s.calls > 0 {
			m.Share = float64(t.Calls()) / float64(s.calls)
		}
		m.Versions = s.running[t.Cluster]
		if wanted, ok := s.wanted[t.Cluster]; ok {
			m.WantedShare = &wanted
		}
	}
	for _, f := range callhealth.Between(faults, t.Caller, t.Callee) {
		if f.GetCluster() == "" || f.GetCluster() == t.Cluster || f.GetCluster() == catalog.LocalCluster && t.Cluster == v.Calling.Cluster() {
			m.Fault = f
			break
		}
	}
	return m
}

// edgeToWire is the message of an edge's counts.
func edgeToWire(t *traffic.Traffic) *v1alpha1.TrafficEdge {
	m := &v1alpha1.TrafficEdge{CallerCluster: t.CallerCluster, Callee: wire.App(t.Callee), Cluster: t.Cluster, ByCallee: t.ByCallee, Traffic: t.Counts.Wire(), UnderWay: t.UnderWay}
	if t.Caller != (catalog.App{}) {
		m.Caller = wire.App(t.Caller)
	}
	for i := range t.Steps {
		step := t.Steps[i].Wire()
		if step == nil {
			step = &v1alpha1.CallTraffic{}
		}
		m.Steps = append(m.Steps, step)
	}
	return m
}

// edgeFromWire reads the counts of an edge.
func edgeFromWire(m *v1alpha1.TrafficEdge) (t traffic.Traffic, err error) {
	t.Edge = traffic.Edge{Caller: wire.AppOf(m.GetCaller()), CallerCluster: m.GetCallerCluster(), Callee: wire.AppOf(m.GetCallee()), Cluster: m.GetCluster(), ByCallee: m.GetByCallee()}
	t.UnderWay = m.GetUnderWay()
	if t.Counts, err = counts.FromWire(m.GetTraffic()); err != nil {
		return t, err
	}
	for _, step := range m.GetSteps() {
		c, err := counts.FromWire(step)
		if err != nil {
			return t, err
		}
		t.Steps = append(t.Steps, c)
	}
	return t, nil
}

// tapRate is how many calls a second of each sidecar are told of where a request names none.
const tapRate = 20

// Tap tells of single calls as they end.
func (v *Inventory) Tap(req *v1alpha1.TapRequest, to grpc.ServerStreamingServer[v1alpha1.TapResponse]) error {
	if req.GetCaller().GetNamespace()+req.GetCaller().GetId()+req.GetCallee().GetNamespace()+req.GetCallee().GetId() == "" {
		return status.Error(codes.InvalidArgument, "name a caller, a callee or a namespace of one: the calls of all apps are too many to look at")
	}
	rate := cmp.Or(min(req.GetPerSecond(), counts.MaxTapped), tapRate)
	who := "an operator"
	if id, known := identity.FromContext(to.Context()); known {
		who = id.App.String()
	}
	tap, sidecars, unable, err := v.Stream.Tap(to.Context(), &v1alpha1.TapFilter{Caller: req.GetCaller(), Callee: req.GetCallee()}, rate)
	if err != nil {
		return err
	}
	told := []any{"by", who, "caller", shown(req.GetCaller()), "callee", shown(req.GetCallee())}
	events := v.Ring.Logger()
	events.Info("single calls are looked at", told...)
	defer events.Info("single calls are not looked at any more", told...)
	if err := to.Send(&v1alpha1.TapResponse{Sidecars: uint32(sidecars), Unable: uint32(unable)}); err != nil {
		return err
	}
	for {
		select {
		case m := <-tap.Calls:
			if err := to.Send(m); err != nil {
				return err
			}
		case <-v.Stopping.Done():
			return context.Cause(v.Stopping)
		case <-to.Context().Done():
			return context.Cause(to.Context())
		}
	}
}

// shown is a filter for people.
func shown(a *v1alpha1.App) string {
	return cmp.Or(a.GetNamespace(), "*") + "/" + cmp.Or(a.GetId(), "*")
}
