package callhealth

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// How often the service looks at the callees of all selections, and which part of the time it
// spends on that at most.
const (
	faultsPause = 2 * time.Second
	faultsShare = 50
)

// mostCallFaults is how many faults of calls a status has.
const mostCallFaults = 20

// Watch names the sources of a [Health], and the receivers of its faults.
type Watch struct {
	Topology *topology.Topology
	// Running tells how many sidecars of each app have registered, and of which their apps can't take
	// calls.
	Running func() (of map[catalog.App]int, unwell []Unwell)
	// Wanted are the apps that callers in other clusters miss, by cluster; SetWanted has those
	// clusters told what callers here miss of them.
	Wanted    func() map[string][]WantedApp
	SetWanted func(from func(cluster string) []*v1alpha1.WantedApp)
	Events    *slog.Logger
}

// WantedApp is an app that another cluster misses, with one of the callers there that select it.
type WantedApp struct{ App, Caller catalog.App }

// Run looks at callees and tells events of faults that come and go, until ctx ends.
func (h *Health) Run(ctx context.Context, w Watch) error {
	told := map[string]*v1alpha1.CallFault{}
	for ctx.Err() == nil {
		start := time.Now()
		if err := h.watch(ctx, w); err == nil { // otherwise what was found before stands
			h.tellFaults(w.Events, told)
		}
		live.Sleep(ctx, max(faultsPause, faultsShare*time.Since(start)))
	}
	return nil
}

// watch looks at the callees of all selections, and at the apps whose health fails.
func (h *Health) watch(ctx context.Context, w Watch) error {
	m, err := w.Topology.Inventory().Map(ctx, topology.MapFilter{})
	if err != nil {
		return err
	}
	of, unwell := w.Running()
	asked, err := w.asked(ctx)
	if err != nil {
		return err
	}
	wanted := h.Look(m.Views, unwell, of, asked, time.Now())
	w.SetWanted(func(cluster string) []*v1alpha1.WantedApp { return WantedFrom(wanted, cluster) })
	return nil
}

// mostAsked bounds the apps that are looked up for other clusters at a time.
const mostAsked = 500

// asked are the apps here that callers in other clusters ask for in vain.
func (w Watch) asked(ctx context.Context) (all []Asked, err error) {
	looked := 0
	for cluster, apps := range w.Wanted() {
		for _, one := range apps {
			if looked++; looked > mostAsked {
				return all, nil
			}
			states, err := w.Topology.Inventory().AppStates(ctx, []catalog.App{one.App})
			if err != nil {
				return nil, err
			}
			if len(states) == 0 || len(states[0].Instances) == 0 {
				continue
			}
			d, err := w.Topology.ResolveFrom(ctx, cluster, one.Caller, one.App)
			if err != nil {
				return nil, err
			}
			if d.Outcome == catalog.Denied {
				all = append(all, Asked{Cluster: cluster, Caller: one.Caller, App: one.App, Why: d.Reason})
			}
		}
	}
	return all, nil
}

// tellFaults tells events of the faults that are new, and of those that are over.
func (h *Health) tellFaults(events *slog.Logger, told map[string]*v1alpha1.CallFault) {
	name := func(f *v1alpha1.CallFault) string {
		return f.GetCheck() + " " + f.GetCaller().String() + " " + f.GetCallee().String() + " " + f.GetCluster()
	}
	fields := func(f *v1alpha1.CallFault) (all []any) {
		all = append(all, "check", f.GetCheck())
		if f.GetCaller() != nil {
			all = append(all, "caller", wire.AppOf(f.GetCaller()).String())
		}
		if f.GetCallee() != nil {
			all = append(all, "callee", wire.AppOf(f.GetCallee()).String())
		}
		if f.GetCluster() != "" {
			all = append(all, "in", f.GetCluster())
		}
		return all
	}
	now := map[string]bool{}
	for _, f := range h.Own(time.Now()) { // each replica logs its own
		now[name(f)] = true
		if told[name(f)] == nil {
			told[name(f)] = f
			events.Warn("calls fail", append(fields(f), "what", f.GetWhat())...)
		}
	}
	for name, f := range told {
		if !now[name] {
			delete(told, name)
			events.Info("calls are well again", fields(f)...)
		}
	}
}

// AddStatus adds the faults of calls.
func (h *Health) AddStatus(answer *v1alpha1.StatusResponse) {
	all := slices.DeleteFunc(h.Faults(time.Now()), func(f *v1alpha1.CallFault) bool {
		return f.GetCheck() == ExportMissing // another cluster may ask for any app
	})
	shown := min(len(all), mostCallFaults)
	answer.CallFaults, answer.CallFaultsLeftOut = all[:shown], uint32(len(all)-shown)
}
