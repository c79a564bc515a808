package stream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// noting makes notes for operators.
type noting struct{ *Server }

// notes are what the service knows of the two apps of a lookup that the decision doesn't say:
// sidecars that are missing, that wait for their app, or that other clusters can't call.
func (s noting) notes(ctx context.Context, caller, app catalog.App, d *catalog.Decision) ([]string, error) {
	states, err := s.topology.Inventory().AppStates(ctx, []catalog.App{app})
	if err != nil {
		return nil, err
	}
	notes := s.objectNotes(caller, d)
	if caller != app {
		notes = append(notes, s.callerNotes(caller)...)
		notes = append(notes, s.spillNotes(caller, app, d)...)
	}
	var callee topology.AppState
	if len(states) > 0 {
		callee = states[0]
	}
	count := countSidecars(s.Sidecars(func(a catalog.App) bool { return a == app }))
	switch {
	case count.waiting > 0:
		notes = append(notes, sidecarsAre(count.waiting, app, "waiting for the app")+": daprd is not ready, most often because the app does not listen on its port yet")
	case count.draining > 0 && callee.Ready == 0:
		notes = append(notes, sidecarsAre(count.draining, app, "draining")+": it stops, or the health check of its app fails")
	case len(callee.Instances) == 0 && d.Outcome != catalog.OK && d.Outcome != catalog.Denied:
		notes = append(notes, fmt.Sprintf("no sidecar of %s is connected here, and no other source has an instance of it", app))
	}
	if count.plainText > 0 {
		notes = append(notes, sidecarsAre(count.plainText, app, "without mTLS")+": no gateway leads there; start daprd with --enable-mtls")
	}
	if len(callee.Instances) > 0 || d.Outcome == catalog.OK {
		return notes, nil
	}
	namesakes, err := s.namesakes(ctx, app)
	for _, other := range namesakes {
		notes = append(notes, fmt.Sprintf("%s runs here: call it as %s.%s if that is meant", other, other.ID, other.Namespace))
	}
	return notes, err
}

// objectNotes are about what decides: a selection that is refused, and a lookup that no other
// cluster is asked for. Where no version of the selection is in force, that is the reason.
func (s noting) objectNotes(caller catalog.App, d *catalog.Decision) (notes []string) {
	if s.cfg.Refusal != nil {
		key := catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: caller.Namespace, Name: caller.ID}
		switch why, inForce := s.cfg.Refusal(key); {
		case why != nil && inForce:
			notes = append(notes, fmt.Sprintf("the newest %s is refused, and the one before is in force: %v", key, why))
		case why != nil && d.Outcome == catalog.Denied:
			d.Reason = fmt.Sprintf("%s is refused, and no good version of it is known, so %s can call only itself; correct or delete the object: %v", key, caller, why)
		}
	}
	if s.cfg.Alone != nil && s.cfg.Alone() && (d.Outcome == catalog.NotFound || d.Outcome == catalog.Unavailable) {
		notes = append(notes, "no Cluster object here, so no other cluster is asked")
	}
	return notes
}

// callerNotes are those of the calling app.
func (s noting) callerNotes(caller catalog.App) []string {
	all := s.Sidecars(func(a catalog.App) bool { return a == caller })
	if len(all) == 0 {
		return []string{fmt.Sprintf("no sidecar of %s is connected here: this is what one would get; see that its Configuration names isthmus and this service", caller)}
	}
	if n := countSidecars(all).plainText; n > 0 {
		return []string{sidecarsAre(n, caller, "without mTLS") + ": calls from there can't pass a gateway; start daprd with --enable-mtls"}
	}
	return nil
}

// Below so many calls, or so much of them, nothing is noted.
const (
	minSpill   = 20
	spillShare = 0.1
)

// spillNotes say that sidecars send more calls to a cluster than its share by ready instances. With
// minReady each does so by what it finds itself, which no view has.
func (s noting) spillNotes(caller, app catalog.App, d *catalog.Decision) (notes []string) {
	if s.cfg.Went == nil || d.Outcome != catalog.OK || !slices.ContainsFunc(d.Routes, func(r catalog.RouteDecision) bool { return r.MinReady != 0 }) {
		return nil
	}
	went, all := s.cfg.Went(caller, app, time.Now()), uint64(0)
	for _, n := range went {
		all += n
	}
	due := map[string]float64{}
	for _, r := range d.Routes { // of whom a cluster may have several, for versions
		due[r.Cluster] += float64(r.Share) / 100
	}
	for _, cluster := range slices.Sorted(maps.Keys(due)) {
		if part := float64(went[cluster]) / float64(max(1, all)); all >= minSpill && part > due[cluster]+spillShare {
			notes = append(notes, fmt.Sprintf("lately %.0f %% of the calls went to %s: unless routes have just changed, the caller's sidecars find that others refuse calls, are slow or are not reached; isthmus tap --from %s --to %s says why", 100*part, cluster, caller, app))
		}
	}
	return notes
}

// namesakes are at most maxListed apps with the same app-id that run in other namespaces here.
func (s noting) namesakes(ctx context.Context, app catalog.App) ([]catalog.App, error) {
	apps, err := s.topology.Inventory().Apps(ctx)
	if err != nil {
		return nil, err
	}
	var others []catalog.App
	for _, other := range apps {
		if other.ID == app.ID && other != app && len(others) < maxListed {
			others = append(others, other)
		}
	}
	states, err := s.topology.Inventory().AppStates(ctx, others)
	if err != nil {
		return nil, err
	}
	var running []catalog.App
	for i := range states {
		if len(states[i].Instances) > 0 {
			running = append(running, states[i].App)
		}
	}
	return running, nil
}

type sidecarCount struct{ waiting, draining, plainText int }

func countSidecars(all []Sidecar) (c sidecarCount) {
	for i := range all {
		switch all[i].State {
		case Waiting:
			c.waiting++
		case Draining:
			c.draining++
		}
		if all[i].PlainText {
			c.plainText++
		}
	}
	return c
}

// sidecarsAre says how many sidecars of an app are in a state.
func sidecarsAre(n int, app catalog.App, state string) string {
	if n == 1 {
		return fmt.Sprintf("1 sidecar of %s is %s", app, state)
	}
	return fmt.Sprintf("%d sidecars of %s are %s", n, app, state)
}
