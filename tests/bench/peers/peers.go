// Package peers measures what a resolver service costs by how many other clusters it knows, up to
// 1,000 of them. Each exports 200 apps to it, and it exports as many to each. Some are in use: they
// call apps of the service's cluster, and are called. What a service costs should follow those.
//
// The service runs in a process of its own for each column. The other clusters are in the program's
// process: each is a topology, with links and a server of its own, a certificate of its own, and
// connections over TCP on loopback by mTLS. They connect directly; gateways would pass the same
// bytes on.
package peers

import (
	"flag"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
)

// plan is what is measured.
type plan struct {
	exports    int           // apps that each cluster exports to each other one
	used       int           // peers that are called, and call
	changes    int           // of the others
	own        int           // changes of the service's own apps
	reconnects int           // of one peer
	settle     time.Duration // before rest
	rest       time.Duration // how long nothing happens
}

// calls is how many apps of ours the i-th peer may call.
func (p *plan) calls(i int) int {
	if i >= p.used {
		return 0
	}
	return min(20, p.exports)
}

// New is the benchmark.
func New(flags *flag.FlagSet) harness.Command {
	var p plan
	sizes := flags.String("sizes", "10,100,300,1000", "columns: peers")
	flags.IntVar(&p.exports, "exports", 200, "apps that each cluster exports to each other one")
	flags.IntVar(&p.used, "used", 20, "peers in use; fewer where there are not so many")
	flags.IntVar(&p.changes, "changes", 500, "changes of other clusters' apps to measure")
	flags.IntVar(&p.own, "own", 60, "changes of the service's own apps to measure")
	flags.IntVar(&p.reconnects, "reconnects", 10, "reconnects to measure")
	flags.DurationVar(&p.settle, "settle", 40*time.Second, "how long to wait before that; peers are told of their trust meanwhile. A link that rests is first asked again after 225 s, and with 1,000 after 750")
	flags.DurationVar(&p.rest, "rest", 10*time.Second, "how long to measure at rest. Links are asked every 260 s on average, and with 1,000 every 875")
	program := flags.String("program", "both", "what is measured: the parts that concern peers, the whole program, or both; \"parts\", \"whole\"")
	return harness.Command{
		Short: "-sizes=2,40 -exports=100 -used=3 -changes=20 -own=4 -reconnects=2 -settle=1s -rest=1s",
		Roles: map[string]harness.Role{"service": harness.As(service)},
		Run: func(b *harness.B) {
			print := func(title string, figures []harness.Column, measure func(*column, *harness.B, plan)) {
				var subjects []*harness.Subject
				for _, c := range columnsOf(*sizes) {
					b.Scope(func(b *harness.B) { measure(c, b, p) })
					subjects = append(subjects, &c.Subject)
				}
				harness.PrintColumns(title, subjects, figures)
			}
			if *program != "whole" {
				print(fmt.Sprintf("A service that knows other clusters, each of which exports %d apps to it, and is told of %d; %d clusters are in use; sent and received are as this service has it", p.exports, p.exports, p.used), figures, (*column).measure)
			}
			if *program != "parts" {
				print(fmt.Sprintf("isthmus serve with other clusters, each with a root of its own; %d clusters are in use", p.used), wholeFigures, (*column).measureWhole)
			}
		},
	}
}

// column is one size while it is measured, and its figures.
type column struct {
	harness.Subject
	plan
	Peers int

	child *harness.Child
	peers []*peer
	rest  rest
}

// rest is what goes by a second while nothing happens.
type rest struct {
	cpu     time.Duration // of the service
	in, out float64       // bytes
}

func columnsOf(sizes string) (all []*column) {
	for size := range strings.SplitSeq(sizes, ",") {
		c := &column{}
		n, _ := fmt.Sscanf(size, "%d", &c.Peers)
		harness.Assert(n > 0 && c.Peers > 1 && c.Peers <= 1000, "-sizes: %q: want 2 to 1000 peers", size)
		c.Name = fmt.Sprintf("%d peers", c.Peers)
		all = append(all, c)
	}
	return all
}

// figures are the table's rows.
var figures = []harness.Column{
	{Head: "exports to us", Figure: "exports", Format: "%.0f"},
	{Head: "connections, both ways", Figure: "connections", Format: "%.0f"},
	{Head: "**memory**: RSS MiB without peers", Figure: "rss alone", Format: "%.1f"}, {Head: "RSS MiB with all peers", Figure: "rss", Format: "%.1f"},
	{Head: "heap MiB", Figure: "heap", Format: "%.1f"},
	{Head: "**at rest**: CPU % of a core", Figure: "rest cpu", Format: "%.2f"},
	{Head: "B/s received", Figure: "rest in", Format: "%.0f"}, {Head: "B/s sent", Figure: "rest out", Format: "%.0f"},
	{Head: "**a change there** → decision in a view, p50 ms", Figure: "change", Format: "%.1f", Quantile: .5}, {Head: "the same, p99 ms", Figure: "change", Format: "%.1f", Quantile: .99},
	{Head: "over a round trip of 50 ms, p50 ms", Figure: "change far", Format: "%.1f", Quantile: .5}, {Head: "the same, p99 ms", Figure: "change far", Format: "%.1f", Quantile: .99},
	{Head: "CPU ms of it", Figure: "change cpu", Format: "%.2f"},
	{Head: "**a change here**, told to the peers that use it: CPU ms", Figure: "own cpu", Format: "%.2f"}, {Head: "B sent for it", Figure: "own out", Format: "%.0f"},
	{Head: "**a start**: all peers but one heard after ms", Figure: "start", Format: "%.0f"}, {Head: "CPU ms of it", Figure: "start cpu", Format: "%.0f"},
	{Head: "**a region lost and back**, with all in use: all of these known again after ms", Figure: "region", Format: "%.0f"}, {Head: "CPU ms of it", Figure: "region cpu", Format: "%.0f"},
	{Head: "**a link at rest**, to be used: its first decision after ms, p50", Figure: "wake", Format: "%.0f", Quantile: .5}, {Head: "over a round trip of 50 ms, p50 ms", Figure: "wake far", Format: "%.0f", Quantile: .5},
	{Head: "**a first connection** to one more: its exports known after ms", Figure: "first", Format: "%.0f"},
	{Head: "KiB received for it", Figure: "first in", Format: "%.1f"}, {Head: "KiB sent for it", Figure: "first out", Format: "%.1f"},
	{Head: "**a reconnect** of one peer, both ways: known again after ms, p50", Figure: "again", Format: "%.0f", Quantile: .5},
	{Head: "KiB received for it", Figure: "again in", Format: "%.1f", Quantile: .5}, {Head: "KiB sent for it", Figure: "again out", Format: "%.1f", Quantile: .5},
	{Head: "CPU ms of it, here", Figure: "again cpu", Format: "%.1f", Quantile: .5},
	{Head: "CPU ms there, and of all other peers meanwhile", Figure: "again there", Format: "%.1f", Quantile: .5},
	{Head: "exports sent again, in all reconnects", Figure: "sent again", Format: "%.0f"}, {Head: "exports sent, where one has changed meanwhile", Figure: "sent changed", Format: "%.0f"},
}

// ours is the cluster whose service is measured.
const ours = "west"

// watcher is the app whose view sees the changes.
var watcher = catalog.App{Namespace: harness.Namespace, ID: "watcher"}

// appOf is the i-th app of a cluster.
func appOf(cluster string, i int) catalog.App {
	return catalog.App{Namespace: harness.Namespace, ID: fmt.Sprintf("%s-app-%05d", cluster, i)}
}

// flip makes the i-th app of a cluster leave, when n is even, or come back.
func flip(cluster string, i, n int) topology.Change {
	at := addressOf(i)
	return harness.Flip(catalog.Instance{ID: at.String(), App: appOf(cluster, i), Address: at}, n)
}

func addressOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), harness.Port)
}

// fill is a cluster with apps that it exports to another one, or to "*".
func fill(cluster, to string, exports int, more ...catalog.Object) topology.Change {
	all := topology.Change{Objects: &topology.ObjectChange{Full: true, Put: more}, Instances: harness.Put().Instances}
	for i := range exports {
		allow := catalog.Allow{Cluster: to, Namespace: harness.Namespace}
		all.Objects.Put = append(all.Objects.Put, &catalog.AppExport{App: appOf(cluster, i), Allow: []catalog.Allow{allow}})
		all.Instances[0].Put = append(all.Instances[0].Put, flip(cluster, i, 1).Instances[0].Put...)
	}
	return all
}

// measure measures one service, which it starts and ends, with its peers.
func (c *column) measure(b *harness.B, p plan) {
	p.used = min(p.used, c.Peers)
	c.plan = p
	certificates := harness.Certificates(b.Dir())
	apps := []catalog.App{identity.ServiceApp("", ours)}
	for i := range c.Peers {
		apps = append(apps, identity.ServiceApp("", peerName(i)))
	}
	certificates.Issue(apps...)
	c.child = b.Child("service", start{certificates, p.exports, c.Peers, p.used, (p.changes/2 + p.used - 1) / p.used})
	harness.Progress("%s: starting", c.Name)
	alone := harness.Ask[harness.Memory](c.child, "Memory", nil)
	address := harness.Ask[string](c.child, "PeerAddress", nil)
	for i := range c.Peers {
		on := harness.Listen()
		one := newPeer(b, peerName(i), address, on)
		one.serve(b, certificates, on, catalog.Trust{}, c.Peers, p.exports, p.calls(i))
		c.peers = append(c.peers, one)
	}
	for _, p := range c.peers {
		b.Await(p.name+" hears "+ours, 5*time.Millisecond, func() { heard(b, p.Topology, 1) })
	}
	c.connect(b)
	linked := harness.Ask[harness.Memory](c.child, "Memory", nil)
	c.Add("exports", float64(c.Peers*p.exports))
	c.MiB("rss alone", alone.RSS)
	c.MiB("rss", linked.RSS)
	c.MiB("heap", linked.Heap)
	c.idle(b)
	c.change(b, "change")
	c.far(func() { c.change(b, "change far") })
	c.changeOwn(b)
	c.wake(b, "wake", 0)
	c.far(func() { c.wake(b, "wake far", 1) })
	c.region(b)
	c.reconnect(b)
}

// spent is what something took, and the CPU time that it cost the service beyond what that uses at rest,
// and this program with all peers.
func (c *column) spent(do func()) (took, service, peers time.Duration) {
	used, self, began := harness.CPU(c.child.PID), harness.OwnCPU(), time.Now()
	do()
	took = time.Since(began)
	return took, max(0, harness.CPU(c.child.PID)-used-time.Duration(took.Seconds()*float64(c.rest.cpu))), harness.OwnCPU() - self
}

// connect has the service ask its peers: all but one of them at once, and then that one.
func (c *column) connect(b *harness.B) {
	last := c.peers[0]
	var took time.Duration
	_, used, _ := c.spent(func() { took = c.link(c.peers[1:]...) })
	c.Took("start", took)
	c.Took("start cpu", used)
	before := last.asked.Traffic()
	c.Took("first", c.link(last))
	b.Pause(100 * time.Millisecond)
	c.Add("first in", float64(last.asked.Traffic().Received-before.Received)/1024)
	c.Add("first out", float64(last.asked.Traffic().Sent-before.Sent)/1024)
	b.Pause(time.Second)
}

// link has the service ask peers, and returns how long it took until all of them were heard.
func (c *column) link(peers ...*peer) time.Duration {
	gateways := map[string]string{}
	for _, p := range peers {
		gateways[p.name] = p.asked.Addr()
	}
	return harness.Ask[time.Duration](c.child, "Link", gateways)
}

// traffic is that of all peers, as the service sees it.
func (c *column) traffic() (in, out float64) {
	for _, p := range c.peers {
		i, o := p.traffic()
		in, out = in+i, out+o
	}
	return in, out
}

// idle measures while nothing happens.
func (c *column) idle(b *harness.B) {
	harness.Progress("%s: at rest", c.Name)
	b.Pause(c.plan.settle)
	in, out := c.traffic()
	took, used, _ := c.spent(func() { b.Pause(c.plan.rest) })
	inNow, outNow := c.traffic()
	c.rest = rest{time.Duration(float64(used) / took.Seconds()), (inNow - in) / took.Seconds(), (outNow - out) / took.Seconds()}
	connections := int64(0)
	for _, p := range c.peers {
		connections += p.asked.Traffic().Connections + p.asks.Traffic().Connections
	}
	c.Add("connections", float64(connections))
	c.Add("rest cpu", 100*c.rest.cpu.Seconds())
	c.Add("rest in", c.rest.in)
	c.Add("rest out", c.rest.out)
}

// far does something while all links have a round trip of 50 ms.
func (c *column) far(do func()) {
	each := func(by time.Duration) {
		for _, p := range c.peers {
			p.asked.Delay(by)
			p.asks.Delay(by)
		}
	}
	each(25 * time.Millisecond)
	defer each(0)
	do()
}

// wake has an app here use one of a peer that was not in use, from the end of their list.
func (c *column) wake(b *harness.B, figure string, from int) {
	for i := c.Peers - 1 - from; i >= c.used && i >= c.Peers-10; i -= 2 {
		c.Took(figure, harness.Ask[time.Duration](c.child, "Use", c.peers[i].name))
	}
}

// region cuts off many peers, with all that are in use, until their leases have run out, and has them
// back.
func (c *column) region(b *harness.B) {
	lost := c.peers[:min(max(c.used, 100), c.Peers)]
	harness.Progress("%s: %d of them lost", c.Name, len(lost))
	for _, p := range lost {
		p.cut()
	}
	b.Pause(3 * time.Second)
	used := lost[:c.used]
	var before []sent
	for _, p := range used {
		before = append(before, p.told.load())
	}
	took, cpu, _ := c.spent(func() {
		for _, p := range lost {
			p.mend()
		}
		for i, p := range used {
			b.Await(p.name+" is heard again", time.Millisecond, func() { harness.Assert(p.told.load().Firsts > before[i].Firsts, "not all is told") })
		}
	})
	c.Took("region", took)
	c.Took("region cpu", cpu)
	b.Pause(time.Second)
}

// change has apps of the peers in use change, 50 a second: one instance each goes, and all of them come
// back.
func (c *column) change(b *harness.B, figure string) {
	harness.Progress("%s: %d changes", c.Name, c.changes)
	began, half := map[sight]int64{}, c.changes/2
	harness.Ask[[]seen](c.child, "Seen", nil) // of the start
	_, used, _ := c.spent(func() {
		for k := range 2 * half {
			p, i := c.peers[k%half%c.used], k%half/c.used
			began[sight{appOf(p.name, i).ID, k >= half}] = time.Now().UnixNano()
			harness.Apply(b, p.Topology, flip(p.name, i, k/half))
			b.Pause(20 * time.Millisecond)
		}
	})
	if figure == "change" {
		c.Took("change cpu", used/time.Duration(c.changes))
	}
	b.Pause(200 * time.Millisecond)
	for _, s := range harness.Ask[[]seen](c.child, "Seen", nil) {
		if at, known := began[s.Sight]; known {
			c.Took(figure, time.Duration(s.At-at))
			delete(began, s.Sight)
		}
	}
	harness.Assert(len(began) == 0, "the view never had %v", began)
}

// changeOwn has apps of the service change, 20 a second, of which the peers that use it are told.
func (c *column) changeOwn(b *harness.B) {
	harness.Progress("%s: %d changes of our own", c.Name, c.own)
	_, before := c.traffic()
	took, used, _ := c.spent(func() {
		harness.Ask[any](c.child, "Change", c.own)
		b.Pause(100 * time.Millisecond)
	})
	_, out := c.traffic()
	c.Took("own cpu", used/time.Duration(c.own))
	c.Add("own out", max(0, out-before-c.rest.out*took.Seconds())/float64(c.own))
}

// reconnect cuts all connections between a peer and the service, both ways, again and again: first when
// nothing has changed meanwhile, then once when one app has.
func (c *column) reconnect(b *harness.B) {
	harness.Progress("%s: %d reconnects", c.Name, c.reconnects)
	again := int64(0)
	for i := range c.reconnects {
		p := c.peers[i%c.used]
		there, here := p.told.load(), harness.Ask[sent](c.child, "Told", nil)
		in, out := p.traffic()
		took, used, peers := c.spent(func() {
			began := time.Now()
			p.cut()
			p.mend()
			b.Await(p.name+" and the service are connected again", 5*time.Millisecond, func() {
				harness.Assert(p.told.load().Firsts > there.Firsts && harness.Ask[sent](c.child, "Told", nil).Firsts > here.Firsts, "not all is told")
			})
			c.Took("again", time.Since(began))
			b.Pause(300 * time.Millisecond) // all that it costs is spent by then, renewals included that came along
		})
		inNow, outNow := p.traffic()
		c.Add("again in", (inNow-in-c.rest.in*took.Seconds()/float64(c.used))/1024)
		c.Add("again out", (outNow-out-c.rest.out*took.Seconds()/float64(c.used))/1024)
		c.Took("again cpu", used)
		c.Took("again there", peers)
		again += p.told.load().Exports - there.Exports + harness.Ask[sent](c.child, "Told", nil).Exports - here.Exports
	}
	c.Add("sent again", float64(again))
	p := c.peers[0]
	before := p.told.load()
	p.cut()
	b.Pause(100 * time.Millisecond) // until both have noticed
	harness.Apply(b, p.Topology, flip(p.name, 0, 0))
	p.mend()
	b.Await(p.name+" is heard again", 5*time.Millisecond, func() { harness.Assert(p.told.load().Firsts > before.Firsts, "not all is told") })
	c.Add("sent changed", float64(p.told.load().Exports-before.Exports))
}
