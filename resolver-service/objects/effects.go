package objects

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects/analysis"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// mostEffects bounds the changed decisions that an answer lists, and the changed exports. One
// Cluster can change those of every app.
const mostEffects = 1000

// objectsOf are the objects that are written, not those that are deleted.
func objectsOf(writes []configstore.Write) (objects []catalog.Object) {
	for _, w := range writes {
		if w.Object != nil {
			objects = append(objects, w.Object)
		}
	}
	return objects
}

// changeOf is what writes would change, with what derives from them.
func (f *Feed) changeOf(writes []configstore.Write) topology.ObjectChange {
	var c configstore.Change
	for _, w := range writes {
		if w.Object != nil {
			c.Objects = append(c.Objects, configstore.Stored{Object: w.Object})
		} else {
			c.Deleted = append(c.Deleted, w.Delete)
		}
	}
	if f.foresee != nil {
		f.foresee(&c)
	}
	return *topologyChange(c, time.Now())
}

// try adds to an answer what a change would alter, and warnings about what is written.
func (s *Server) try(ctx context.Context, c topology.ObjectChange, written []catalog.Object, answer *v1alpha1.ApplyResponse) error {
	var findings func() []analysis.Finding
	effects, err := s.topology.Try(ctx, c, func(facts topology.Facts) {
		findings = analysis.Run(facts, s.cfg.Service, slices.Values(written))
	})
	if err != nil {
		return s.untried(err)
	}
	addEffects(answer, &effects)
	warn(answer, findings())
	return nil
}

// addEffects adds what changes, in the order in which people want to read it.
func addEffects(answer *v1alpha1.ApplyResponse, effects *topology.Effects) {
	type ranked struct {
		*topology.Effect
		becomes
	}
	var all []ranked
	var counts [back + 1]uint32
	for i := range effects.Lookups {
		e := &effects.Lookups[i]
		if what, differs := compare(&e.Before, &e.After); differs {
			all = append(all, ranked{e, what})
			counts[what]++
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.becomes, b.becomes) })
	answer.Counts = &v1alpha1.EffectCounts{Fail: counts[fails], Elsewhere: counts[elsewhere], Back: counts[back], Other: counts[failsOtherwise]}
	for _, e := range all[:min(len(all), mostEffects)] {
		answer.Effects = append(answer.Effects, effectToWire(e.Effect))
	}
	answer.EffectsLeftOut = uint32(len(all) - len(answer.Effects))
	for i := range effects.Exports[:min(len(effects.Exports), mostEffects)] {
		answer.Exports = append(answer.Exports, exportToWire(&effects.Exports[i]))
	}
	answer.ExportsLeftOut = uint32(len(effects.Exports) - len(answer.Exports))
}

// mostCallers bounds the callers that are named for one export.
const mostCallers = 20

func exportToWire(e *topology.ExportEffect) *v1alpha1.ExportEffect {
	w := &v1alpha1.ExportEffect{Cluster: e.Cluster, App: wire.App(e.App), Result: "changed", Removed: callers(e.Before, e.After), Added: callers(e.After, e.Before)}
	switch {
	case len(e.After) == 0:
		w.Result = "withdrawn"
	case len(e.Before) == 0:
		w.Result = "exported"
	}
	return w
}

// callers are those that one list has and the other has not.
func callers(all, but []catalog.Allow) (names []string) {
	for _, a := range all {
		if !slices.Contains(but, a) && len(names) < mostCallers {
			names = append(names, cmp.Or(a.Namespace, "*")+"/"+cmp.Or(a.App, "*"))
		}
	}
	return names
}

func (s *Server) untried(err error) error {
	if errors.Is(err, topology.ErrNotSynced) {
		return status.Errorf(codes.FailedPrecondition, "%v; see isthmus status", err)
	}
	return s.explain(err)
}

// becomes is what becomes of a lookup, in the order in which people want to read it.
type becomes int

const (
	fails becomes = iota
	elsewhere
	failsOtherwise
	back
)

// compare tells what becomes of a lookup, and whether its caller would see a difference. The
// object that decides, or the address that one lookup happens to get, is none.
func compare(before, after *catalog.Decision) (what becomes, differs bool) {
	switch was, is := before.Outcome == catalog.OK, after.Outcome == catalog.OK; {
	case was && !is:
		return fails, true
	case !was && is:
		return back, true
	case !was:
		return failsOtherwise, before.Outcome != after.Outcome
	default:
		return elsewhere, !slices.EqualFunc(taken(before), taken(after), sameShare)
	}
}

// taken are the routes that lookups take, by cluster.
func taken(d *catalog.Decision) (all []catalog.RouteDecision) {
	for _, r := range d.Routes {
		if r.Share > 0 || r.Take != "" { // also calls that a guest takes only with a header, or once it is heard
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b catalog.RouteDecision) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}

func sameShare(a, b catalog.RouteDecision) bool {
	return a.Cluster == b.Cluster && a.Take == b.Take && math.Abs(a.Share-b.Share) < 0.01
}
