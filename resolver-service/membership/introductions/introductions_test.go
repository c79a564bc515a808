package introductions

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// cluster is one whose introductions are told and heard, with its Cluster objects by name.
type cluster struct {
	t       testing.TB
	name    string
	written map[string]*catalog.Cluster
	objects live.Value[[]*catalog.Cluster]
	set     configstore.Set
	heard   *Heard
	told    *Directory
	file    string
	unknown bool   // its own trust domain
	anchors string // its own roots, in PEM
	signs   string // those of them that its certificate chains to
}

func newCluster(t testing.TB, name, file string) *cluster {
	c := &cluster{t: t, name: name, written: map[string]*catalog.Cluster{}, file: file}
	c.start()
	return c
}

// start makes the service anew, with the objects that are written.
func (c *cluster) start() {
	c.set = configstore.Set{}
	c.heard = NewHeard(Config{
		Cluster: c.name, File: c.file,
		Domains:   func() ([]string, bool) { return []string{c.name + ".example", "apps." + c.name}, !c.unknown },
		Anchors:   func() ([]byte, error) { return []byte(c.anchors), nil },
		Authority: func() ([]byte, string, error) { return []byte(c.signs), c.name + ".example", nil },
		Reachable: func(a netip.AddrPort) error {
			if a.Addr().IsLoopback() {
				return errors.New("loopback")
			}
			return nil
		},
	}, slog.New(slog.DiscardHandler))
	c.heard.SetDeriver(c)
	c.told = NewDirectory(c.name, &c.objects)
	var all []configstore.Stored
	for _, object := range c.written {
		all = append(all, configstore.Stored{Object: object, Revision: "1"})
	}
	c.take(configstore.Change{Full: true, Objects: all})
}

func (c *cluster) take(change configstore.Change) {
	foreseen := change
	if !change.Full {
		c.heard.Foresee(&foreseen)
	}
	c.heard.Add(&change)
	if !change.Full && told(foreseen) != told(change) {
		c.t.Errorf("a change was foreseen as %s, and is %s", told(foreseen), told(change))
	}
	c.apply(change)
}

func (c *cluster) Derive(_ string, derive func(*configstore.Change)) error {
	var change configstore.Change
	derive(&change)
	c.apply(change)
	return nil
}

func (c *cluster) apply(change configstore.Change) {
	c.set.Apply(change)
	var all []*catalog.Cluster
	for _, stored := range c.set.All() {
		all = append(all, stored.Object.(*catalog.Cluster))
	}
	c.objects.Store(all)
}

// write writes Cluster objects, "name: {spec}" each; with no spec it deletes.
func (c *cluster) write(objects ...string) {
	c.t.Helper()
	for _, text := range objects {
		name, spec, _ := strings.Cut(text, ": ")
		if spec == "" {
			delete(c.written, name)
			c.take(configstore.Change{Deleted: []catalog.Key{{Kind: catalog.KindCluster, Name: name}}})
			continue
		}
		spec = strings.NewReplacer("ROOT1", pem(0), "ROOT2", pem(1), "ROOTS", pem(0, 1)).Replace(spec)
		all, errs := api.DecodeYAML("test.yaml", []byte(apitest.Object("Cluster", "{name: "+name+"}", spec)))
		if len(errs) > 0 {
			c.t.Fatal(errs)
		}
		c.written[name] = all[0].(*catalog.Cluster)
		c.take(configstore.Change{Objects: []configstore.Stored{{Object: all[0], Revision: spec}}})
	}
}

func pem(roots ...int) string {
	var text strings.Builder
	for _, root := range roots {
		text.WriteString([]string{apitest.EastRoot, apitest.NorthRoot}[root])
	}
	return `"` + strings.ReplaceAll(text.String(), "\n", `\n`) + `"`
}

// link is west's to a hub, which hears what the hub tells.
type link struct {
	from, to *cluster
	told     *Listing
}

// pass carries what is new over the link, as bytes.
func (l *link) pass() (messages int) {
	known, ended := l.to.heard.Known(l.from.name)
	if ended == nil {
		l.told = nil
		return 0
	}
	now, _ := l.from.told.Follow()
	if !now.Tells(l.to.name) {
		return 0
	}
	m := &v1alpha1.IntroductionsResponse{Cluster: l.from.name}
	if l.told == nil {
		by := map[string]uint64{}
		for _, k := range known {
			by[k.GetCluster()] = k.GetDigest()
		}
		m.Put, m.Removed = now.First(l.to.name, by)
	} else {
		m.Put, m.Removed = now.Since(l.told, l.to.name)
	}
	l.told = now
	if len(m.Put)+len(m.Removed) == 0 {
		return 0
	}
	text, err := proto.Marshal(m)
	again := &v1alpha1.IntroductionsResponse{}
	if err := errors.Join(err, proto.Unmarshal(text, again), l.to.heard.Hear(l.from.name, again)); err != nil {
		l.to.t.Fatal(err)
	}
	return 1
}

// shows lists the clusters that count: each as "name by introducer gateway".
func (c *cluster) shows() string {
	var all []string
	now, _ := c.objects.Load()
	for _, object := range now {
		if object.IntroducedBy == "" {
			all = append(all, object.Name)
		} else {
			all = append(all, fmt.Sprintf("%s by %s %s", object.Name, object.IntroducedBy, strings.Join(object.Gateways, " ")))
		}
	}
	return strings.Join(all, ", ")
}

// says is what status has of a hub, without what is zero.
func (c *cluster) says(hub string) string {
	peers := []*v1alpha1.PeerStatus{{Cluster: hub}}
	c.heard.AddStatus(peers)
	s := peers[0].GetIntroduces()
	var all []string
	for _, n := range []struct {
		name string
		n    uint32
	}{{"told", s.GetTold()}, {"taken", s.GetTaken()}, {"not accepted", s.GetNotAccepted()}, {"outranked", s.GetOutranked()}, {"refused", s.GetRefused()}, {"differing", s.GetDiffering()}, {"over", s.GetOver()}} {
		if n.n > 0 {
			all = append(all, fmt.Sprint(n.n, " ", n.name))
		}
	}
	for _, p := range s.GetProblems() {
		all = append(all, p.GetCluster()+": "+p.GetWhy())
	}
	return strings.Join(all, "; ")
}

const (
	hubRule = `hub: {gateways: [{address: "203.0.113.1"}], staleAfter: 7s, trust: {domain: hub.example, roots: ROOT1}, introduces: {names: ["eu-*", us], trustDomains: ["*.corp", hub.example]}}`
	eu      = `eu-1: {gateways: [{address: "203.0.113.2"}], labels: [region=eu], trust: {domain: eu.corp, roots: ROOT1}, introduceTo: {names: ["*"]}}`
	euHere  = "eu-1 by hub 203.0.113.2:15443, hub"
)

// TestIntroductions has a row for each rule. West hears hub and, where a row says so, another one.
func TestIntroductions(t *testing.T) {
	for _, row := range []struct {
		name string
		hub  []string // objects there, beside west's
		west []string // objects here
		then func(w *world)
		want string // that counts here in the end
		says string // of hub
	}{
		{name: "introduced", hub: []string{eu}, west: []string{hubRule}, want: euHere, says: "1 told; 1 taken"},
		{name: "without a rule here", hub: []string{eu}, west: []string{`hub: {gateways: [{address: "203.0.113.1"}]}`}, want: "hub"},
		{name: "an own object", hub: []string{eu}, west: []string{hubRule, `eu-1: {gateways: [{address: "198.51.100.9"}]}`}, want: "eu-1, hub", says: "1 told; 1 outranked"},
		{name: "an own object that goes", hub: []string{eu}, west: []string{hubRule, `eu-1: {gateways: [{address: "198.51.100.9"}]}`, "eu-1"}, want: euHere, says: "1 told; 1 taken"},
		{name: "an own object that comes", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.west.write(`eu-1: {network: n}`) }, want: "eu-1, hub", says: "1 told; 1 outranked"},
		{name: "a name that is not accepted", hub: []string{eu, `asia: {gateways: [{address: "203.0.113.3"}], introduceTo: {names: ["*"]}}`}, west: []string{hubRule}, want: euHere, says: "2 told; 1 taken; 1 not accepted"},
		{
			name: "a label that is not accepted", hub: []string{eu, `us: {gateways: [{address: "203.0.113.3"}], labels: [region=us], introduceTo: {names: ["*"]}}`},
			west: []string{strings.Replace(hubRule, "names: [", "labels: [region=eu], names: [", 1)}, want: euHere, says: "2 told; 1 taken; 1 not accepted",
		},
		{name: "this cluster itself", hub: []string{`west: {gateways: [{address: "203.0.113.3"}], introduceTo: {names: ["*"]}}`}, west: []string{strings.Replace(hubRule, ", us]", `, "*"]`, 1)}, want: "hub"},
		{
			name: "a root of our own trust domain", hub: []string{strings.Replace(eu, "eu.corp", "west.example", 1)}, west: []string{hubRule},
			want: "hub", says: "1 told; 1 refused; eu-1: brings roots for trust domain west.example, which is this cluster's own; give it another trust domain, or write a Cluster object for it here",
		},
		{
			name: "a root of our apps' trust domain", hub: []string{strings.Replace(eu, "eu.corp,", "eu.corp, appDomain: apps.west,", 1)}, west: []string{hubRule},
			want: "hub", says: "1 told; 1 refused; eu-1: brings roots for trust domain apps.west, which is this cluster's own; give it another trust domain, or write a Cluster object for it here",
		},
		{
			name: "another root of a cluster with an object", hub: []string{eu}, west: []string{hubRule, `other: {trust: {domain: eu.corp, roots: ROOT2}}`},
			want: "hub, other", says: "1 told; 1 refused; eu-1: brings other roots for trust domain eu.corp than Cluster other, which has an object here; add them there first, or write a Cluster object for this one, too",
		},
		{name: "such an object that goes", hub: []string{eu}, west: []string{hubRule, `other: {trust: {domain: eu.corp, roots: ROOT2}}`, "other"}, want: euHere, says: "1 told; 1 taken"},
		{name: "such an object that comes", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.west.write(`other: {trust: {domain: eu.corp, roots: ROOT2}}`) }, want: "hub, other", says: "1 told; 1 refused; eu-1: brings other roots for trust domain eu.corp than Cluster other, which has an object here; add them there first, or write a Cluster object for this one, too"},
		{name: "the root that an object has", hub: []string{strings.Replace(eu, "eu.corp", "hub.example", 1)}, west: []string{hubRule}, want: euHere, says: "1 told; 1 taken"},
		{
			name: "a trust domain that the rule has not", hub: []string{strings.Replace(eu, "eu.corp", "eu.elsewhere", 1)}, west: []string{hubRule},
			want: "hub", says: "1 told; 1 refused; eu-1: its trust domain eu.elsewhere is none of spec.introduces.trustDomains of its introducer's Cluster object here; add it there, if the introducer may bring it",
		},
		{
			name: "roots of no trust domain", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
				eu := *w.hub.written["eu-1"]
				eu.Trust.Domain = "" // which no object of today says that introduces
				w.hub.take(configstore.Change{Objects: []configstore.Stored{{Object: &eu, Revision: "2"}}})
			},
			want: "hub", says: "1 told; 1 refused; eu-1: brings roots and names no trust domain; write spec.trust.domain into its Cluster object at the introducer",
		},
		{name: "our own roots and trust domain", hub: []string{`us: {gateways: [{address: "203.0.113.3"}], introduceTo: {names: [west]}}`}, west: []string{hubRule}, want: "hub, us by hub 203.0.113.3:15443", says: "1 told; 1 taken"},
		{
			name: "before our own trust domain is known", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.west.unknown = true; w.restart() },
			want: "hub", says: "1 told; 1 refused; eu-1: this cluster's own trust domain is not known yet, since its service has no certificate",
		},
		{name: "once it is known", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			w.west.unknown = true
			w.restart()
			w.west.unknown = false
			if err := w.west.heard.Reconsider(); err != nil {
				w.t.Error(err)
			}
		}, want: euHere, says: "1 told; 1 taken"},
		{
			name: "a root of our own, under another trust domain", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.anchored(apitest.EastRoot, apitest.NorthRoot) },
			want: "hub", says: "1 told; 1 refused; eu-1: brings the root of this cluster's own authority for trust domain eu.corp; let its Cluster object at the introducer name the roots of that cluster alone",
		},
		{name: "a root that sidecars here believe, which is another's", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			w.anchored(apitest.NorthRoot, apitest.EastRoot)
		}, want: euHere, says: "1 told; 1 taken"},
		{name: "a root that our own object announces", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			w.anchored(apitest.NorthRoot, apitest.EastRoot)
			w.west.write(`west: {trust: {domain: west.example, roots: ROOTS}}`)
		}, want: "hub, west", says: "1 told; 1 refused; eu-1: brings the root of this cluster's own authority for trust domain eu.corp; let its Cluster object at the introducer name the roots of that cluster alone"},
		{name: "a root that an object has no more", hub: []string{strings.Replace(eu, "ROOT1", "ROOTS", 1)}, west: []string{hubRule, `other: {trust: {domain: eu.corp, roots: ROOTS}}`}, then: func(w *world) {
			w.pass()
			w.west.write(`other: {trust: {domain: eu.corp, roots: ROOT2}}`)
		}, want: "hub, other", says: "1 told; 1 refused; eu-1: brings other roots for trust domain eu.corp than Cluster other, which has an object here; add them there first, or write a Cluster object for this one, too"},
		{name: "a root that an object gets", hub: []string{strings.Replace(eu, "ROOT1", "ROOTS", 1)}, west: []string{hubRule, `other: {trust: {domain: eu.corp, roots: ROOT2}}`}, then: func(w *world) {
			w.pass()
			w.west.write(`other: {trust: {domain: eu.corp, roots: ROOTS}}`)
		}, want: euHere + ", other", says: "1 told; 1 taken"},
		{
			name: "the trust domain of a guest", hub: []string{strings.Replace(eu, "eu.corp, roots: ROOT1", "k3.laptop.guest.west.example", 1)}, west: []string{hubRule},
			want: "hub", says: "1 told; 1 refused; eu-1: its trust domain k3.laptop.guest.west.example is one of a guest of this cluster; give it another one",
		},
		{name: "what somebody else told with the hub's key", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			w.pass()
			now, _ := w.hub.told.Follow()
			put, _ := now.First("west", nil)
			forged := proto.CloneOf(put[0])
			forged.Object.Spec.Gateways[0].Address = "198.51.100.66:15443"
			if err := w.west.heard.Hear("hub", &v1alpha1.IntroductionsResponse{Put: []*v1alpha1.Introduction{forged}}); err != nil {
				w.t.Error(err)
			}
			w.toHub.told = nil
		}, want: euHere, says: "1 told; 1 taken"},
		{name: "the hub deletes our object", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.pass(); w.hub.write("west") }, want: euHere, says: "1 told; 1 taken"},
		{name: "a refused one, and a restart", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			w.hear("network: [net-1]", func(s *v1alpha1.ClusterSpec) { s.Network = "net-1" })
			w.away = true
			w.restart()
		}, want: "hub"},
		{name: "a root that was our own", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			w.anchored(apitest.EastRoot)
			w.anchored(apitest.NorthRoot)
		}, want: euHere, says: "1 told; 1 taken"},
		{
			name: "our own roots for our own trust domain", hub: []string{strings.Replace(eu, "eu.corp", "west.example", 1)}, west: []string{hubRule}, then: func(w *world) { w.anchored(apitest.EastRoot) },
			want: euHere, says: "1 told; 1 taken",
		},
		{
			name: "also another root for our own trust domain", hub: []string{strings.Replace(strings.Replace(eu, "eu.corp", "west.example", 1), "ROOT1", "ROOTS", 1)}, west: []string{hubRule}, then: func(w *world) { w.anchored(apitest.EastRoot) },
			want: "hub", says: "1 told; 1 refused; eu-1: brings roots for trust domain west.example, which is this cluster's own; give it another trust domain, or write a Cluster object for it here",
		},
		{name: "a gateway on this machine", hub: []string{strings.Replace(eu, "203.0.113.2", "127.0.0.1", 1)}, west: []string{hubRule}, want: "hub", says: "1 told; 1 refused; eu-1: its gateway 127.0.0.1:15443 can't be used: loopback"},
		{name: "a peer that is not in introduceTo", hub: []string{strings.Replace(eu, `"*"`, `north, "we"`, 1)}, west: []string{hubRule}, want: "hub"},
		{name: "a peer by its label", hub: []string{`west: {labels: [tier=edge]}`, strings.Replace(eu, `names: ["*"]`, "labels: [tier=edge]", 1)}, west: []string{hubRule}, want: euHere, says: "1 told; 1 taken"},
		{name: "a peer that loses its label", hub: []string{`west: {labels: [tier=edge]}`, strings.Replace(eu, `names: ["*"]`, "labels: [tier=edge]", 1)}, west: []string{hubRule}, then: func(w *world) { w.hub.write("west: {}") }, want: "hub"},
		{name: "nobody is told by default", hub: []string{strings.Replace(eu, `, introduceTo: {names: ["*"]}`, "", 1)}, west: []string{hubRule}, want: "hub"},
		{name: "withdrawn", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.hub.write(strings.Replace(eu, `"*"`, "north", 1)) }, want: "hub"},
		{name: "deleted there", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.hub.write("eu-1") }, want: "hub"},
		{name: "deleted there while the hub was away", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.hub.write("eu-1"); w.toHub.told = nil }, want: "hub"},
		{name: "changed", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.hub.write(strings.Replace(eu, "113.2", "113.8", 1)) }, want: "eu-1 by hub 203.0.113.8:15443, hub", says: "1 told; 1 taken"},
		{name: "the hub away", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.hub.write("eu-1"); w.away = true }, want: euHere, says: "1 told; 1 taken"},
		{name: "the hub away, and a restart", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.away = true; w.restart() }, want: euHere, says: "1 told; 1 taken"},
		{name: "a restart, and the hub is back", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.restart(); w.hub.write("eu-1") }, want: "hub"},
		{name: "the rule deleted", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.away = true; w.west.write(`hub: {gateways: [{address: "203.0.113.1"}]}`) }, want: "hub"},
		{name: "the rule narrowed", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.away = true; w.west.write(strings.Replace(hubRule, "eu-*", "eu-2", 1)) }, want: "hub", says: "1 told; 1 not accepted"},
		{name: "the rule widened", hub: []string{eu}, west: []string{strings.Replace(hubRule, "eu-*", "eu-2", 1)}, then: func(w *world) { w.away = true; w.west.write(hubRule) }, want: euHere, says: "1 told; 1 taken"},
		{name: "the rule deleted, and back", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			w.west.write(`hub: {gateways: [{address: "203.0.113.1"}]}`)
			w.pass()
			w.west.write(hubRule)
		}, want: euHere, says: "1 told; 1 taken"},
		{name: "the hub's object deleted", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.away = true; w.west.write("hub") }, want: ""},
		{name: "the hub's object deleted, and a restart", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.away = true; w.west.write("hub"); w.restart(); w.west.write(hubRule) }, want: "hub"},
		{
			name: "another introducer that says the same", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.second("hub-2", eu) },
			want: euHere + ", hub-2", says: "1 told; 1 taken",
		},
		{
			name: "another introducer that differs", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.second("hub-2", strings.Replace(eu, "113.2", "113.8", 1)) },
			want: euHere + ", hub-2", says: "1 told; 1 taken",
		},
		{
			name: "another introducer that comes first by its name", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.second("a", strings.Replace(eu, "113.2", "113.8", 1)) },
			want: "a, eu-1 by a 203.0.113.8:15443, hub", says: "1 told; 1 differing; eu-1: a introduces it with other gateways or another trust, and comes first by its name; have one of them corrected, or leave it out of spec.introduces of one",
		},
		{
			name: "another introducer that goes", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.second("a", strings.Replace(eu, "113.2", "113.8", 1)); w.west.write("a") },
			want: euHere, says: "1 told; 1 taken",
		},
		{name: "transitive", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			north := newCluster(w.t, "north", "")
			north.write(strings.Replace(hubRule, "hub: {", "west: {", 1))
			w.west.write(`north: {gateways: [{address: "203.0.113.4"}], introduceTo: {names: ["*"]}}`, `us: {gateways: [{address: "203.0.113.5"}], introduceTo: {names: ["*"]}}`)
			l := &link{from: w.west, to: north}
			l.pass()
			if got := north.shows(); got != "us by west 203.0.113.5:15443, west" {
				w.t.Errorf("north has %s", got)
			}
		}, want: euHere + ", north, us", says: "1 told; 1 taken"},
		{name: "more than a name, gateways and trust", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) { w.hear("network: [net-1]", func(s *v1alpha1.ClusterSpec) { s.Network = "net-1" }) }, want: "hub", says: "1 told; 1 refused; eu-1: says more than the name, labels, gateways and trust of a cluster"},
		{name: "an introducer of an introducer", hub: []string{eu}, west: []string{hubRule}, then: func(w *world) {
			w.hear("introduces", func(s *v1alpha1.ClusterSpec) { s.Introduces = &v1alpha1.Introduces{Names: []string{"*"}} })
		}, want: "hub", says: "1 told; 1 refused; eu-1: says more than the name, labels, gateways and trust of a cluster"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.hub.write(row.hub...)
			w.west.write(row.west...)
			w.pass()
			if row.then != nil {
				row.then(w)
			}
			w.pass()
			if got := w.west.shows(); got != row.want {
				t.Errorf("west has %q, want %q", got, row.want)
			}
			if got := w.west.says("hub"); got != row.says {
				t.Errorf("of hub %q, want %q", got, row.says)
			}
			w.west.saysOfAbsent()
			if n := w.toHub.pass(); n > 0 && !w.away {
				t.Error("what has not changed was told again")
			}
			for name, c := range w.west.heard.derived {
				if c.StaleAfter.String() != w.west.written[c.IntroducedBy].StaleAfter.String() || c.Source.From == "" || w.west.written[name] != nil {
					t.Errorf("%s: %+v", name, c)
				}
			}
			if got, all := slices.Sorted(maps.Keys(w.west.heard.derived)), w.west.shows(); len(got) != strings.Count(all, " by ") {
				t.Errorf("derived %v of %s", got, all)
			}
		})
	}
}

// world has hub, which has an object for west, and west.
type world struct {
	t         testing.TB
	hub, west *cluster
	toHub     *link
	others    []*link
	away      bool // hub is
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, hub: newCluster(t, "hub", ""), west: newCluster(t, "west", filepath.Join(t.TempDir(), "introductions"))}
	w.toHub = &link{from: w.hub, to: w.west}
	w.hub.write("west: {}")
	return w
}

func (w *world) pass() {
	if !w.away {
		w.toHub.pass()
	}
	for _, l := range w.others {
		l.pass()
	}
}

// second is another introducer, with west's rule for it.
func (w *world) second(name, object string) {
	other := newCluster(w.t, name, "")
	other.write("west: {}", object)
	w.west.write(strings.Replace(hubRule, "hub: {", name+": {", 1))
	w.others = append(w.others, &link{from: other, to: w.west})
	w.pass()
}

// restart saves what was heard, and makes west anew.
func (w *world) restart() {
	if err := atomicfile.Write(w.west.file, w.west.heard.save); err != nil {
		w.t.Fatal(err)
	}
	w.west.start()
	w.toHub.told = nil
}

// hear has west hear of eu-1 with a spec that no hub of ours would tell.
func (w *world) hear(what string, edit func(*v1alpha1.ClusterSpec)) {
	m := api.Introduction(w.hub.written["eu-1"])
	edit(m.Spec)
	if err := w.west.heard.Hear("hub", &v1alpha1.IntroductionsResponse{Put: []*v1alpha1.Introduction{{Object: m, Digest: 1}}}); err != nil {
		w.t.Fatal(what, err)
	}
}

// anchored gives west other roots of its own, by the first of which it signs.
func (w *world) anchored(roots ...string) {
	w.pass()
	w.west.anchors, w.west.signs = strings.Join(roots, ""), roots[0]
	if err := w.west.heard.Reconsider(); err != nil {
		w.t.Error(err)
	}
}

// saysOfAbsent holds that each cluster which is introduced and does not count has a reason, and no other has.
func (c *cluster) saysOfAbsent() {
	for by, i := range c.heard.by {
		for name := range i.heard {
			there := c.heard.derived[name] != nil || c.written[name] != nil || name == c.name
			if why := c.heard.Absent(name); there != (why == "") {
				c.t.Errorf("%s, by %s: it is there: %v; absent: %q", name, by, there, why)
			}
		}
	}
	if why := c.heard.Absent("nobody"); why != "" {
		c.t.Errorf("nobody: %s", why)
	}
}

// told is a change, in any order.
func told(c configstore.Change) string {
	var all []string
	for _, stored := range c.Objects {
		all = append(all, "put "+stored.Object.Key().String()+" "+string(api.EncodeJSON(stored.Object)))
	}
	for _, key := range c.Deleted {
		all = append(all, "delete "+key.String())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
