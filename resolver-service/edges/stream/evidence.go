package stream

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
)

// Sidecars report the clusters that their calls don't reach. Reports are shown to operators. They
// end a cluster's lease only if so many callers agree that no single one can forge it, and no
// other caller still gets there.
const (
	leastAgreeing = 3
	agreeFor      = time.Second
	countEvery    = 250 * time.Millisecond
)

// Bounds of one report.
const (
	maxUnreached   = 64
	maxGatewayName = 300
	maxWhy         = 256 // bytes
	longestFor     = 24 * time.Hour
)

// unreached is one report of a caller.
type unreached struct {
	cluster, gateway string
	app              catalog.App // zero: all apps behind the gateway
	since            time.Time
	why              string
}

// parseUnreached checks a report.
func parseUnreached(m *pb.Unreached) ([]unreached, error) {
	if n := len(m.GetAll()); n > maxUnreached {
		return nil, fmt.Errorf("%d entries; at most %d are allowed", n, maxUnreached)
	}
	all := make([]unreached, 0, len(m.GetAll()))
	for _, e := range m.GetAll() {
		if err := catalog.CheckCluster(e.GetCluster()); err != nil {
			return nil, err
		}
		if n := len(e.GetGateway()); n > maxGatewayName {
			return nil, fmt.Errorf("a gateway's address of %d bytes; at most %d are allowed", n, maxGatewayName)
		}
		u := unreached{cluster: e.GetCluster(), gateway: catalog.Printable(e.GetGateway()), why: catalog.Clip(catalog.Printable(e.GetWhy()), maxWhy)}
		if e.GetApp() != nil {
			var err error
			if u.app, err = wire.ParseApp(e.GetApp()); err != nil {
				return nil, err
			}
		}
		u.since = time.Now().Add(-min(longestFor, time.Duration(min(e.GetForMs(), uint64(longestFor.Milliseconds())))*time.Millisecond))
		all = append(all, u)
	}
	return all, nil
}

// caller is the sidecar of one stream. All sidecars of one app at one source count once.
type caller struct {
	app    catalog.App
	source netip.Addr
	view   func() (*catalog.View, bool)
	watch  *watch
	number uint64 // of its stream; it grows

	reports []unreached
}

// callerID is what counts once.
type callerID struct {
	app    catalog.App
	source netip.Addr
}

// Unreached sums up the reports about a cluster.
type Unreached struct {
	By      int // callers that don't reach it, at least in part
	Callers int // callers whose calls lead there
	Since   time.Time
	Why     string // from one report
}

// evidence collects the reports of all callers. It is safe for concurrent use.
type evidence struct {
	unreachable func(cluster, why string)

	mu      sync.Mutex
	callers map[*caller]struct{}
	streams uint64 // that there have been
	votes   map[string]*vote
	idle    bool                              // there are no reports and no votes
	targets map[*catalog.View]map[string]bool // clusters that each view leads to
}

// vote is the agreement about one cluster.
type vote struct {
	since  time.Time        // when callers began to agree
	voters map[*caller]bool // that agreed when the lease ended; nil before
	why    string
}

func newEvidence(unreachable func(cluster, why string)) *evidence {
	if unreachable == nil {
		unreachable = func(string, string) {}
	}
	return &evidence{unreachable: unreachable, callers: map[*caller]struct{}{}, votes: map[string]*vote{}, idle: true}
}

func (e *evidence) add(c *caller) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.streams++
	c.number = e.streams
	e.callers[c] = struct{}{}
}

func (e *evidence) remove(c *caller) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.callers, c)
}

func (e *evidence) report(c *caller, all []unreached) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.reports, e.idle = all, false
}

// run counts the reports until ctx ends.
func (e *evidence) run(ctx context.Context) error {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.count(time.Now())
		case <-ctx.Done():
			return nil
		}
	}
}

// tally counts the callers of a cluster.
type tally struct {
	agree    map[*caller]bool  // callers that don't reach it
	agreeing map[callerID]bool // the same, each app and source once
	partly   int               // callers that reach a part, or all but one app
	accusing int               // of these, the callers that don't reach a gateway
	reach    int               // callers without a report
	since    time.Time         // of the first report
	why      string
	reporter catalog.App
}

// example returns one of the reports.
func (t *tally) example() string {
	return fmt.Sprintf("%s: %s", t.reporter, cmp.Or(t.why, "no reason"))
}

func (t *tally) callers() int { return len(t.agree) + t.partly + t.reach }

// tallies counts the callers of all reported clusters; mu is held.
func (e *evidence) tallies() map[string]*tally {
	all := map[string]*tally{}
	for c := range e.callers {
		for i := range c.reports {
			u := &c.reports[i]
			t := all[u.cluster]
			if t == nil {
				t = &tally{agree: map[*caller]bool{}, agreeing: map[callerID]bool{}}
				all[u.cluster] = t
			}
			if u.app == (catalog.App{}) && (t.since.IsZero() || u.since.Before(t.since)) {
				t.since, t.why, t.reporter = u.since, u.why, c.app
			}
		}
	}
	views := map[*catalog.View]map[string]bool{} // instances of an app share one view
	defer func() { e.targets = views }()
	for c := range e.callers {
		view, _ := c.view()
		for cluster, t := range all {
			switch whole, any := c.unreachedOf(cluster, view); {
			case whole:
				t.agree[c] = true
				t.agreeing[callerID{c.app, c.source}] = true
			case any:
				t.partly++
				if c.accuses(cluster) {
					t.accusing++
				}
			default:
				leads, known := views[view]
				if !known {
					if leads, known = e.targets[view]; !known {
						leads = targetClusters(view)
					}
					views[view] = leads
				}
				if leads[cluster] {
					t.reach++
				}
			}
		}
	}
	return all
}

// unreachedOf tells whether the caller reaches nothing of a cluster, or not all of it.
func (c *caller) unreachedOf(cluster string, view *catalog.View) (whole, any bool) {
	gateways := map[string]bool{}
	for i := range c.reports {
		u := &c.reports[i]
		if u.cluster != cluster {
			continue
		}
		any = true
		if u.app == (catalog.App{}) {
			whole = whole || u.gateway == ""
			gateways[u.gateway] = true
		}
	}
	if whole || !any || view == nil || len(view.Gateways.Addresses[cluster]) == 0 {
		return whole, any
	}
	for _, at := range view.Gateways.Addresses[cluster] {
		if !gateways[at] {
			return false, true
		}
	}
	return true, true
}

// accuses tells whether the caller does not reach a gateway of a cluster. An app that does not answer
// behind a gateway says nothing against that.
func (c *caller) accuses(cluster string) bool {
	return slices.ContainsFunc(c.reports, func(u unreached) bool { return u.cluster == cluster && u.app == catalog.App{} })
}

// targetClusters returns the clusters that lookups in a view lead to.
func targetClusters(view *catalog.View) map[string]bool {
	all := map[string]bool{}
	if view == nil || view.Open {
		return all
	}
	for _, entry := range view.Entries.All() {
		for _, share := range entry.Shares() {
			if !share.Route.Local {
				all[share.Route.Cluster] = true
			}
		}
		for _, t := range entry.Takes() {
			all[t.Cluster] = all[t.Cluster] || t.Usable()
		}
	}
	return all
}

// count ends the leases of clusters that callers agree not to reach, and lifts that again.
func (e *evidence) count(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.idle {
		return
	}
	all := e.tallies()
	for cluster, t := range all {
		v := e.votes[cluster]
		switch {
		case !e.agreed(v, t):
			e.dropVote(cluster)
		case v == nil:
			e.votes[cluster] = &vote{since: now}
		case now.Sub(v.since) >= agreeFor:
			if v.voters == nil {
				v.voters, v.why = t.agree, fmt.Sprintf("%d of %d callers don't reach it; %s", len(t.agree), t.callers(), t.example())
			}
			e.unreachable(cluster, v.why) // repeated, since the link may be a new one
		}
	}
	for cluster := range e.votes {
		if all[cluster] == nil {
			e.dropVote(cluster)
		}
	}
	e.idle = len(all) == 0
}

// agreed tells whether callers agree that they don't reach a cluster; v is nil before the first
// time. Once the lease has ended, no view leads there. So a voter that takes its report back has
// reached the cluster.
func (e *evidence) agreed(v *vote, t *tally) bool {
	if len(t.agreeing) < leastAgreeing || 2*len(t.agree) <= t.callers() || t.reach > 0 {
		return false
	}
	if v == nil {
		return true
	}
	for c := range v.voters {
		if _, here := e.callers[c]; here && !t.agree[c] {
			return false
		}
	}
	return true
}

func (e *evidence) dropVote(cluster string) {
	if v := e.votes[cluster]; v != nil {
		delete(e.votes, cluster)
		if v.voters != nil {
			e.unreachable(cluster, "")
		}
	}
}

// Unreached returns the clusters of which callers don't reach all gateways.
func (s *Server) Unreached() map[string]Unreached { return s.evidence.clusters() }

func (e *evidence) clusters() map[string]Unreached {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]Unreached{}
	for cluster, t := range e.tallies() {
		if by := len(t.agree) + t.accusing; by > 0 {
			all[cluster] = Unreached{By: by, Callers: t.callers(), Since: t.since, Why: t.example()}
		}
	}
	return all
}

// UnreachedCallees returns the apps of other clusters that don't answer callers, behind gateways
// that do, sorted.
func (s *Server) UnreachedCallees() []callhealth.Unreached { return s.evidence.callees() }

func (e *evidence) callees() (all []callhealth.Unreached) {
	e.mu.Lock()
	defer e.mu.Unlock()
	type callee struct {
		cluster string
		app     catalog.App
	}
	at := map[callee]*callhealth.Unreached{}
	for c := range e.callers {
		counted := map[callee]bool{} // by one gateway or several
		for i := range c.reports {
			u := &c.reports[i]
			key := callee{u.cluster, u.app}
			if u.app == (catalog.App{}) {
				continue
			}
			if at[key] == nil {
				at[key] = &callhealth.Unreached{Cluster: u.cluster, Callee: u.app}
			}
			found := at[key]
			if !counted[key] {
				counted[key] = true
				found.By++
			}
			if found.Since.IsZero() || u.since.Before(found.Since) {
				found.Since, found.Why = u.since, fmt.Sprintf("%s: %s", c.app, cmp.Or(u.why, "no reason"))
			}
		}
	}
	for _, one := range at {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b callhealth.Unreached) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), a.Callee.Compare(b.Callee))
	})
	return all
}
