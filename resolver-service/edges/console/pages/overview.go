package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// overview is the first page.
type overview struct {
	Status       *v1alpha1.StatusResponse
	Faults       []fault // of calls
	MoreFaults   uint32
	Problems     []problem // others
	Figures      string    // all calls of the last minute; empty if there are none
	Missing      []*v1alpha1.MissingReplica
	Picture      *picture
	Collapsed    bool
	Peers        []pair
	AtRest       int // peers beside these
	Store        string
	Checks       *checked
	Certificates []*v1alpha1.TrustStatus
	Events       []*v1alpha1.Event
	Now          time.Time
}

// fault is calls that fail.
type fault struct {
	*v1alpha1.CallFault
	Since  string
	Change *catalog.Key // that the change before it was of
}

// Explain is the page that explains the calls; empty where they are not of one app to one other.
func (f *fault) Explain() string {
	if f.GetCaller() == nil || f.GetCallee() == nil {
		return ""
	}
	caller := show.Name(f.GetCaller())
	if in := f.GetCallerCluster(); in != "" && in != catalog.LocalCluster {
		caller = in + ":" + caller
	}
	return explainPath(caller, show.Name(f.GetCallee()))
}

// counted is how many of the calls fail; empty where that was not counted.
func (f *fault) counted() string {
	switch {
	case f.GetCalls() == 0:
		return ""
	case f.GetOf() > f.GetCalls():
		return fmt.Sprintf("%d of %d calls in the last minute", f.GetCalls(), f.GetOf())
	}
	return show.Count(int(f.GetCalls()), "call") + " in the last minute"
}

// where is the cluster in which the calls are answered, or where not.
func (f *fault) where() string {
	if c := f.GetCluster(); c != "" && c != catalog.LocalCluster {
		return " in cluster " + plain(c)
	}
	return ""
}

// faultOf is a fault of calls that a status has.
func faultOf(r *request, f *v1alpha1.CallFault) fault {
	one := fault{CallFault: f, Since: time.UnixMilli(f.GetSinceUnixMs()).UTC().Format("15:04:05Z") + ", " + ago(f.GetSinceUnixMs(), r.now)}
	if key, _, ok := ruleKey(f.GetChange()); ok {
		one.Change = &key
	}
	return one
}

// pair is two clusters, with both directions between them.
type pair struct {
	show.PeerLine
	Console string // of the other cluster; empty where it is not known
}

// problem is something wrong, with whom it hurts.
type problem struct {
	Text    string
	Cluster string // that it is about; empty: none alone
	Hurt    []hurt
	More    int           // that are hurt, too, and not listed
	Stands  []catalog.Key // objects of which the version before is in force
}

// hurt is a caller whose lookups of a callee a problem changes.
type hurt struct{ Caller, Callee, How string }

// How many of each the first page shows.
const (
	mostHurt         = 12
	mostCertificates = 6
	mostEvents       = 10
	lately           = 24 * time.Hour
)

func overviewPage(r *request) (*content, error) {
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	o := &overview{Status: now, Now: r.now, Store: show.StoreLine(now, r.now), Checks: r.diagnose.latest(r), MoreFaults: now.GetCallFaultsLeftOut()}
	for _, f := range now.GetCallFaults() {
		o.Faults = append(o.Faults, faultOf(r, f))
	}
	var peers []show.PeerLine
	peers, o.AtRest = show.Peers(now, r.now)
	for _, line := range peers {
		o.Peers = append(o.Peers, pair{line, r.Consoles[line.Cluster]})
	}
	if o.Problems, err = r.problems(now, func([]string) bool { return true }); err != nil {
		return nil, err
	}
	if err := fillTopology(r, o); err != nil {
		return nil, err
	}
	o.Certificates = byExpiry(show.Certificates(now, r.now))
	o.Certificates = o.Certificates[:min(len(o.Certificates), mostCertificates)]
	if o.Events, err = r.events(r.now.Add(-lately)); err != nil {
		return nil, err
	}
	slices.Reverse(o.Events)
	o.Events = o.Events[:min(len(o.Events), mostEvents)]
	return &content{Page: o, Title: "Overview", Command: "isthmus status", Live: true}, nil
}

// fillTopology draws what calls what, with the calls of the last minute.
func fillTopology(r *request, o *overview) error {
	g, err := r.wholeGraph()
	if err != nil {
		return err
	}
	calls, err := r.traffic(&v1alpha1.TrafficRequest{}, windows[0])
	if err != nil {
		return err
	}
	live := addTraffic(g, calls)
	o.Figures, o.Missing = figures(calls), calls.GetMissing()
	o.Picture, o.Collapsed = drawFitting(g, live, "", "")
	return o.Picture.zoom("", func(zoom string) string { return withQuery("/map", "zoom", zoom) })
}

// problems are what isthmus status says is wrong about some beside calls, in its words, with whom it hurts.
func (r *request) problems(now *v1alpha1.StatusResponse, about func(names []string) bool) ([]problem, error) {
	var all []problem
	for _, p := range show.Unhealthy(now, r.now) {
		if p.GetKind() == "calls" || !about(p.GetNames()) {
			continue
		}
		one := problem{Text: show.Problem(p)}
		var err error
		switch {
		case p.GetKind() == "object":
			one.Stands, err = r.standing(p.GetWhat())
		case strings.HasPrefix(p.GetKind(), "peer") && len(p.GetNames()) > 0:
			err = one.hurts(r, p.GetNames())
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// standing are the objects of which a refusal leaves the version before in force.
func (r *request) standing(refusal string) (all []catalog.Key, err error) {
	objects, _, err := r.inForce(&v1alpha1.GetRequest{Refused: true, Most: mostHurt})
	for i := range objects {
		if o := &objects[i]; o.Refused != "" && strings.Contains(refusal, o.Refused) {
			all = append(all, o.Key())
		}
	}
	return all, err
}

// hurts notes whom it hurts that clusters are not well.
func (p *problem) hurts(r *request, clusters []string) error {
	ask := func() (*v1alpha1.GraphResponse, error) { return r.graph(&v1alpha1.GraphRequest{Via: clusters[0]}) }
	if len(clusters) > 1 {
		ask = r.wholeGraph
	}
	g, err := ask()
	if err != nil {
		return err
	}
	p.Cluster, p.Hurt = clusters[0], hurtBy(g, clusters)
	if more := len(p.Hurt) - mostHurt; more > 0 {
		p.Hurt, p.More = p.Hurt[:mostHurt], more
	}
	return nil
}

// hurtBy are the callers here whose ways lead to clusters that are not well: first those whose lookups
// fail.
func hurtBy(g *v1alpha1.GraphResponse, clusters []string) []hurt {
	var failed, others []hurt
	for _, c := range g.GetCalls() {
		there, elsewhere := false, ""
		for _, route := range c.GetRoutes() {
			on := slices.Contains(clusters, route.GetCluster())
			there = there || on
			if route.GetTaken() && !on {
				elsewhere = cmp.Or(elsewhere, route.GetCluster())
			}
		}
		switch {
		case !there || c.GetIn() != g.GetCluster():
		case elsewhere != "":
			others = append(others, hurt{show.Name(c.GetCaller()), show.Name(c.GetCallee()), "goes to " + elsewhere})
		case c.GetState() == "stale":
			others = append(others, hurt{show.Name(c.GetCaller()), show.Name(c.GetCallee()), "still goes there, by its whenStale"})
		case c.GetState() == "ready":
			others = append(others, hurt{show.Name(c.GetCaller()), show.Name(c.GetCallee()), "still goes there"})
		default:
			failed = append(failed, hurt{show.Name(c.GetCaller()), show.Name(c.GetCallee()), "fails"})
		}
	}
	return append(failed, others...)
}

// byExpiry sorts certificates by their end, those without one last.
func byExpiry(all []*v1alpha1.TrustStatus) []*v1alpha1.TrustStatus {
	slices.SortStableFunc(all, func(a, b *v1alpha1.TrustStatus) int {
		return cmp.Compare(uint64(a.GetNotAfterUnixMs())-1, uint64(b.GetNotAfterUnixMs())-1) // 0 comes last
	})
	return all
}

// checked is what the checks of the service have found.
type checked struct {
	*v1alpha1.CheckResponse
	At    time.Time
	Error string
}

// Age is how long ago they were made.
func (c *checked) Age(now time.Time) string { return show.Span(now.Sub(c.At)) }

// counts is how many of each there are.
func (c *checked) counts() string {
	return fmt.Sprintf("%d failed, %s, %d ok", c.GetFail(), show.Count(int(c.GetWarn()), "warning"), c.GetOk())
}

// checkEvery is the least time between two rounds of checks for the first page. They connect to
// gateways.
const checkEvery = 30 * time.Second

// diagnosis keeps the last round of checks, for all.
type diagnosis struct {
	mu      sync.Mutex
	last    *checked
	running bool
}

// latest is the last round; nil before the first has ended. If it is old, another one begins, which the
// page does not wait for.
func (d *diagnosis) latest(r *request) *checked {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running && (d.last == nil || r.now.Sub(d.last.At) > checkEvery) {
		ctx, done, ok := r.watch.begin(r.As, r.session)
		if !ok {
			return d.last
		}
		d.running = true
		again := *r
		again.ctx = ctx
		go func() {
			defer done()
			d.keep(again.checks())
			r.watch.changed()
		}()
	}
	return d.last
}

func (d *diagnosis) keep(c *checked) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last, d.running = c, false
}

// checks makes all checks of the service.
func (r *request) checks() *checked {
	c := &checked{CheckResponse: &v1alpha1.CheckResponse{}}
	stream, err := v1alpha1.NewStatusClient(r.Conn).Check(r.ctx, &v1alpha1.CheckRequest{})
	err = receive(stream, err, func(m *v1alpha1.CheckResponse) { proto.Merge(c.CheckResponse, m) })
	if err != nil {
		c.Error = r.Explain(err).Error()
	}
	check.Sort(c.GetResults())
	show.Diagnosed(c.CheckResponse)
	c.At = time.Now()
	return c
}

func checksPage(r *request) (*content, error) {
	c := r.checks()
	r.diagnose.keep(c)
	return &content{Page: c, Title: "Checks", Command: "isthmus check --all"}, nil
}
