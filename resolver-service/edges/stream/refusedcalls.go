package stream

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/series"
)

// Bounds of the callers that have series of their own. Other clusters' callers have a share of
// their own, so that they take no place of this cluster's.
const (
	maxLocalRefused  = 200
	maxRemoteRefused = 100
	forgetRefused    = time.Hour        // after its last refusal a caller is forgotten
	crowdedRefused   = 10 * time.Minute // the same, where others want the place
)

// refusedCalls counts the calls that sidecars report as refused, by the caller: at the lookup by its
// own sidecar, or at the callee by its guard. It is a [prometheus.Collector].
type refusedCalls struct {
	local, remote series.Bounded[refusedCaller, refusedCount]

	mu     sync.Mutex // guards pruned
	pruned time.Time  // when room was last made
}

type refusedCaller struct {
	app     catalog.App // zero: no certificate names it
	cluster string      // empty where its certificate does not tell
}

// What refuses calls.
const (
	byLookup = iota
	byGuard
)

// refusedCount counts the refusals of one caller, by what refused and by outcome.
type refusedCount struct {
	count [2][catalog.NotReady + 1]uint64
	last  time.Time
}

var refusedDesc = prometheus.NewDesc("isthmus_refused_calls_total",
	"Calls that sidecars of this replica report as refused, by caller; by the caller's lookup, or by the callee's guard.",
	[]string{"caller_namespace", "caller", "caller_cluster", "by", "outcome"}, nil)

func newRefusedCalls() *refusedCalls {
	r := &refusedCalls{}
	r.local.Most, r.remote.Most = maxLocalRefused, maxRemoteRefused
	return r
}

// report takes in what a sidecar of an app reports: refused lookups are the app's own, and refused
// calls those of others to it.
func (r *refusedCalls) report(app catalog.App, m *pb.CallReport, now time.Time) {
	for _, l := range m.GetRefusedLookups() {
		if o, err := catalog.ParseOutcome(l.GetOutcome()); err == nil && o != catalog.OK {
			r.add(refusedCaller{app, catalog.LocalCluster}, byLookup, o, l.GetCount(), now)
		}
	}
	for _, c := range m.GetCalls() {
		who := refusedCaller{app: catalog.App{Namespace: c.GetCaller().GetNamespace(), ID: c.GetCaller().GetId()}}
		if cluster := c.GetCluster(); cluster == catalog.LocalCluster || catalog.CheckCluster(cluster) == nil {
			who.cluster = cluster
		}
		r.add(who, byGuard, catalog.Denied, c.GetRefused(), now)
		r.add(who, byGuard, catalog.NotReady, c.GetNotReady(), now)
	}
}

func (r *refusedCalls) add(who refusedCaller, by int, o catalog.Outcome, n uint64, now time.Time) {
	if n == 0 {
		return
	}
	all := &r.remote
	if who.cluster == catalog.LocalCluster {
		all = &r.local
	}
	if all.Full() && r.mayPrune(now) {
		r.forget(now, crowdedRefused)
	}
	all.Use(who, func(c *refusedCount) {
		c.count[by][o] += n
		c.last = now
	})
}

// mayPrune bounds how often callers can cause a walk over all.
func (r *refusedCalls) mayPrune(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.pruned) < time.Second {
		return false
	}
	r.pruned = now
	return true
}

// forget removes the callers without a refusal for so long.
func (r *refusedCalls) forget(now time.Time, after time.Duration) {
	for _, all := range []*series.Bounded[refusedCaller, refusedCount]{&r.local, &r.remote} {
		all.Remove(func(_ refusedCaller, c *refusedCount) bool { return now.Sub(c.last) > after }, func(other, from *refusedCount) {
			for by := range from.count {
				for o, n := range from.count[by] {
					other.count[by][o] += n
				}
			}
		})
	}
}

// Describe implements [prometheus.Collector].
func (r *refusedCalls) Describe(to chan<- *prometheus.Desc) { to <- refusedDesc }

// Collect implements [prometheus.Collector].
func (r *refusedCalls) Collect(to chan<- prometheus.Metric) {
	r.forget(time.Now(), forgetRefused)
	emit := func(cluster string) func(refusedCaller, bool, *refusedCount) {
		return func(who refusedCaller, other bool, c *refusedCount) {
			if other {
				who = refusedCaller{catalog.App{ID: "other"}, cluster}
			}
			for by, name := range [...]string{byLookup: "lookup", byGuard: "guard"} {
				for o, n := range c.count[by] {
					if n > 0 {
						to <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n),
							who.app.Namespace, who.app.ID, who.cluster, name, catalog.Outcome(o).String())
					}
				}
			}
		}
	}
	r.local.Each(emit(catalog.LocalCluster))
	r.remote.Each(emit("other"))
}
