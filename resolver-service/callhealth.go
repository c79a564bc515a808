package resolverservice

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// How often the service looks at the callees of all selections, and which part of the time it spends
// on that at most.
const (
	faultsPause = 2 * time.Second
	faultsShare = 50
)

// mostCallFaults is how many faults of calls a status has.
const mostCallFaults = 20

// followCalls looks at callees and tells events of faults that come and go, until ctx ends.
func (s *Service) followCalls(ctx context.Context) error {
	told := map[string]*v1alpha1.CallFault{}
	for ctx.Err() == nil {
		start := time.Now()
		if err := s.lookAtCalls(ctx); err == nil { // otherwise what was found before stands
			s.tellFaults(told)
		}
		live.Sleep(ctx, max(faultsPause, faultsShare*time.Since(start)))
	}
	return nil
}

// lookAtCalls looks at the callees of all selections, and at the apps whose health fails.
func (s *Service) lookAtCalls(ctx context.Context) error {
	m, err := s.topology.Map(ctx, topology.MapFilter{})
	if err != nil {
		return err
	}
	var unwell []callhealth.Unwell
	of := map[catalog.App]int{}
	for _, one := range s.resolver.stream.Sidecars(func(catalog.App) bool { return true }) {
		if one.State == stream.Waiting {
			continue
		}
		of[one.App]++
		if one.Unwell != "" {
			unwell = append(unwell, callhealth.Unwell{App: one.App, Why: one.Unwell, Since: one.Since})
		}
	}
	asked, err := s.asked(ctx)
	if err != nil {
		return err
	}
	wanted := s.health.Look(m.Views, unwell, of, asked, time.Now())
	s.links.SetWanted(func(cluster string) []*v1alpha1.WantedApp { return callhealth.WantedFrom(wanted, cluster) })
	return nil
}

// mostAsked bounds the apps that are looked up for other clusters at a time.
const mostAsked = 500

// asked are the apps here that callers in other clusters ask for in vain.
func (s *Service) asked(ctx context.Context) (all []callhealth.Asked, err error) {
	looked := 0
	for cluster, apps := range s.peers.Wanted() {
		for _, w := range apps {
			if looked++; looked > mostAsked {
				return all, nil
			}
			states, err := s.topology.AppStates(ctx, []catalog.App{w.App})
			if err != nil {
				return nil, err
			}
			if len(states) == 0 || len(states[0].Instances) == 0 {
				continue
			}
			d, err := s.topology.ResolveFrom(ctx, cluster, w.Caller, w.App)
			if err != nil {
				return nil, err
			}
			if d.Outcome == catalog.Denied {
				all = append(all, callhealth.Asked{Cluster: cluster, Caller: w.Caller, App: w.App, Why: d.Reason})
			}
		}
	}
	return all, nil
}

// unreachedCallees are the apps in other clusters that sidecars here don't reach, though they reach a
// gateway there.
func (s *Service) unreachedCallees() (all []callhealth.Unreached) {
	for _, u := range s.resolver.stream.UnreachedCallees() {
		all = append(all, callhealth.Unreached{Cluster: u.Cluster, Callee: u.App, By: u.By, Since: u.Since, Why: u.Why})
	}
	return all
}

// tellFaults tells events of the faults that are new, and of those that are over.
func (s *Service) tellFaults(told map[string]*v1alpha1.CallFault) {
	name := func(f *v1alpha1.CallFault) string {
		return f.GetCheck() + " " + f.GetCaller().String() + " " + f.GetCallee().String() + " " + f.GetCluster()
	}
	fields := func(f *v1alpha1.CallFault) (all []any) {
		all = append(all, "check", f.GetCheck())
		if f.GetCaller() != nil {
			all = append(all, "caller", catalogApp(f.GetCaller()).String())
		}
		if f.GetCallee() != nil {
			all = append(all, "callee", catalogApp(f.GetCallee()).String())
		}
		if f.GetCluster() != "" {
			all = append(all, "in", f.GetCluster())
		}
		return all
	}
	events, now := s.events.Logger(), map[string]bool{}
	for _, f := range s.health.Faults(time.Now()) {
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

// addCallFaults adds what is wrong with calls.
func (s *Service) addCallFaults(answer *v1alpha1.StatusResponse) {
	all := slices.DeleteFunc(s.health.Faults(time.Now()), func(f *v1alpha1.CallFault) bool {
		return f.GetCheck() == callhealth.ExportMissing // another cluster may ask for any app
	})
	shown := min(len(all), mostCallFaults)
	answer.CallFaults, answer.CallFaultsLeftOut = all[:shown], uint32(len(all)-shown)
}
