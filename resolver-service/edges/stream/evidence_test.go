package stream

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

const gate = "10.9.0.1:15443"

// viewOf is a view with orders in east, through two gateways, and where else it is ready.
func viewOf(routes ...catalog.Route) *catalog.View {
	app := catalog.App{Namespace: "shop", ID: "orders"}
	entry := catalog.NewEntry(app, catalog.Rule{}, routes)
	return &catalog.View{
		Entries:  catalog.NewTable([]catalog.Edit[*catalog.Entry]{{App: app, Value: entry}}),
		Gateways: &catalog.Gateways{Addresses: map[string][]string{"east": {gate, "10.9.0.2:15443"}}},
	}
}

var (
	viaEast = catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "east", Weight: 1}, Gateway: true, Ready: 1, Addresses: []string{"orders.shop.east.isthmus.internal:15443"}}
	here    = catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, Local: true, Ready: 1, Addresses: []string{"10.0.0.1:50002"}}
	gone    = catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "east", Weight: 1}, Gateway: true, State: catalog.LeaseExpired}
)

// poll is the callers of one cluster, and the state of its lease.
type poll struct {
	*evidence
	all   []*caller
	now   time.Time
	lease string // why it was ended
	times int    // that this changed
}

// newPoll makes callers, each on a host of its own.
func newPoll(callers int) *poll {
	p := &poll{now: time.Now()}
	p.evidence = newEvidence(func(_, why string) {
		if why != p.lease {
			p.lease = why
			p.times++
		}
	})
	for i := range callers {
		p.joins(catalog.App{Namespace: "shop", ID: fmt.Sprint("app-", i)}, fmt.Sprintf("10.1.0.%d", i), viewOf(viaEast))
	}
	return p
}

func (p *poll) joins(app catalog.App, source string, view *catalog.View) *caller {
	c := &caller{app: app, source: netip.MustParseAddr(source)}
	c.view = func() (*catalog.View, bool) { return view, true }
	p.add(c)
	p.all = append(p.all, c)
	return c
}

// says has callers report, from the first on.
func (p *poll) says(callers int, entries ...unreached) {
	for _, c := range p.all[:callers] {
		p.report(c, entries)
	}
}

func (p *poll) pass(d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); p.count(p.now) {
		p.now = p.now.Add(countEvery)
	}
}

var (
	nothing = unreached{cluster: "east", why: "connection refused"}
	oneWay  = unreached{cluster: "east", gateway: gate}
	other   = unreached{cluster: "east", gateway: "10.9.0.2:15443"}
	oneApp  = unreached{cluster: "east", app: catalog.App{Namespace: "shop", ID: "orders"}}
)

func TestALeaseEndsOnlyWhereCallersAgree(t *testing.T) {
	for _, test := range []struct {
		what string
		poll func() *poll
		ends bool
	}{
		{"three of three", func() *poll { p := newPoll(3); p.says(3, nothing); return p }, true},
		{"each gateway of it", func() *poll { p := newPoll(3); p.says(3, oneWay, other); return p }, true},
		{"two of two", func() *poll { p := newPoll(2); p.says(2, nothing); return p }, false},
		{"one of a hundred", func() *poll { p := newPoll(100); p.says(1, nothing); return p }, false},
		{"one reaches it", func() *poll { p := newPoll(10); p.says(9, nothing); return p }, false},
		{"one gateway of two", func() *poll { p := newPoll(5); p.says(5, oneWay); return p }, false},
		{"one app there", func() *poll { p := newPoll(5); p.says(5, oneApp); return p }, false},
		{"most of it by most, the rest in part", func() *poll { p := newPoll(5); p.says(5, oneWay); p.says(3, nothing); return p }, true},
		{"half of it by half", func() *poll { p := newPoll(6); p.says(6, oneWay); p.says(3, nothing); return p }, false},
		{"one app with many streams at one host", func() *poll {
			p := newPoll(0)
			for range 8 {
				p.joins(catalog.App{Namespace: "shop", ID: "evil"}, "10.1.0.1", viewOf(viaEast))
			}
			p.says(8, nothing)
			return p
		}, false},
		{"others whose calls go elsewhere", func() *poll {
			p := newPoll(3)
			p.says(3, nothing)
			p.joins(catalog.App{Namespace: "shop", ID: "near"}, "10.1.0.9", viewOf(here))
			return p
		}, true},
		{"of another cluster", func() *poll { p := newPoll(3); p.says(3, unreached{cluster: "north"}); return p }, true},
	} {
		p := test.poll()
		p.pass(900 * time.Millisecond)
		if p.lease != "" {
			t.Errorf("%s: the lease was ended within a second", test.what)
		}
		p.pass(time.Second)
		if (p.lease != "") != test.ends {
			t.Errorf("%s: the lease was ended: %q; want that: %v", test.what, p.lease, test.ends)
		}
	}
}

func TestTheLeaseComesBackOnceCallersAgreeNoMore(t *testing.T) {
	ended := func() *poll {
		p := newPoll(4)
		p.says(4, nothing)
		p.pass(2 * time.Second)
		if want := "4 of 4 callers don't reach it; shop/app-"; !strings.HasPrefix(p.lease, want) || !strings.HasSuffix(p.lease, ": connection refused") {
			t.Fatalf("ended because of %q, want %q …", p.lease, want)
		}
		for _, c := range p.all { // no view leads there any more
			view := viewOf(gone)
			c.view = func() (*catalog.View, bool) { return view, true }
		}
		return p
	}
	p := ended()
	p.pass(time.Minute)
	if p.lease == "" || p.times != 1 {
		t.Errorf("it came back while all agree, %d changes", p.times)
	}
	p.says(1)
	if p.pass(countEvery); p.lease != "" {
		t.Errorf("one reaches it, and it is still ended: %s", p.lease)
	}
	p = ended()
	p.remove(p.all[0])
	if p.pass(time.Second); p.lease == "" {
		t.Error("it came back because one of four has left")
	}
	p.remove(p.all[1])
	if p.pass(countEvery); p.lease != "" {
		t.Errorf("two are too few: %s", p.lease)
	}
	p = ended()
	p.says(4)
	if p.pass(countEvery); p.lease != "" || !p.idle || len(p.votes) != 0 {
		t.Errorf("nobody says anything: %q, %v", p.lease, p.votes)
	}
}

func TestReportsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	many := make([]*pb.UnreachedGateway, maxUnreached+1)
	for i := range many {
		many[i] = &pb.UnreachedGateway{Cluster: "east"}
	}
	for what, m := range map[string]*pb.Unreached{
		"many entries":   {All: many},
		"a long gateway": {All: []*pb.UnreachedGateway{{Cluster: "east", Gateway: long}}},
		"no cluster":     {All: []*pb.UnreachedGateway{{}}},
		"a bad cluster":  {All: []*pb.UnreachedGateway{{Cluster: long}}},
		"a bad app":      {All: []*pb.UnreachedGateway{{Cluster: "east", App: &pb.App{Id: long}}}},
	} {
		if all, err := parseUnreached(m); err == nil {
			t.Errorf("%s: taken as %+v", what, all)
		}
	}
	all, err := parseUnreached(&pb.Unreached{All: []*pb.UnreachedGateway{{Cluster: "east", Why: "\x1b[2J" + long, ForMs: 1 << 63}}})
	if err != nil || len(all[0].why) != maxWhy || strings.Contains(all[0].why, "\x1b") || time.Since(all[0].since) > longestFor+time.Minute {
		t.Errorf("taken as %+v, %v", all, err)
	}
}

// TestWhomReportsAccuse has a row for each mix of reports of two callers: the link to the cluster, or
// the app there, and what is said of the first caller's calls of that app.
func TestWhomReportsAccuse(t *testing.T) {
	behind := unreached{cluster: "east", gateway: gate, app: oneApp.app, why: "it is connected, but does not answer"}
	behindOther := behind
	behindOther.gateway = other.gateway
	another := unreached{cluster: "east", gateway: gate, app: catalog.App{Namespace: "shop", ID: "stock"}}
	for what, c := range map[string]struct {
		reports       [2][]unreached
		link, callee  int // callers that don't reach it
		ofFirst       int // sidecars of the first caller whose calls of orders fail
		firstIsCallee bool
	}{
		"nobody reports":                    {},
		"one callee is frozen":              {[2][]unreached{{behind}, nil}, 0, 1, 1, true},
		"behind both gateways":              {[2][]unreached{{behind, behindOther}, {behind}}, 0, 2, 1, true},
		"another callee is frozen":          {[2][]unreached{{another}, nil}, 0, 0, 0, false},
		"a gateway is not reached":          {[2][]unreached{{oneWay}, nil}, 1, 0, 0, false},
		"both gateways are not reached":     {[2][]unreached{{oneWay, other}, nil}, 1, 0, 1, false},
		"nothing is reached":                {[2][]unreached{{nothing}, {nothing}}, 2, 0, 1, false},
		"a gateway, and a callee by others": {[2][]unreached{{oneWay, behindOther}, nil}, 1, 1, 1, true},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPoll(2)
			for i, entries := range c.reports {
				for j := range entries {
					entries[j].since = p.now.Add(-time.Minute)
				}
				p.report(p.all[i], entries)
			}
			if got := p.clusters()["east"].By; got != c.link {
				t.Errorf("%d callers accuse the link, want %d", got, c.link)
			}
			callee := 0
			for _, u := range p.callees() {
				if u.Cluster == "east" && u.Callee == oneApp.app {
					callee = u.By
				}
			}
			if callee != c.callee {
				t.Errorf("%d callers accuse the callee, want %d", callee, c.callee)
			}
			by, oldest := p.unreachedBy(p.all[0].app, oneApp.app, "east")
			if by != c.ofFirst || by > 0 && (oldest.app == oneApp.app) != c.firstIsCallee {
				t.Errorf("of the first caller %d sidecars fail, for %+v; want %d", by, oldest, c.ofFirst)
			}
		})
	}
}
