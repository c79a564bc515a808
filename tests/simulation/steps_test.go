package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
)

// plan is the events of one run. It follows from the seed alone.
type plan struct {
	seed       uint64
	staleAfter map[string]time.Duration
	withCalls  bool // what happens to the paths of services happens to those of callers, too
	steps      []step
}

// step is one event. It is fixed when the plan is made and does not depend on earlier steps, so
// that any step can be left out.
type step struct {
	kind string
	text string
	do   func(w *world)
}

func (s step) String() string { return strings.TrimSpace(s.kind + " " + s.text) }

// maker makes random steps.
type maker struct{ *rand.Rand }

func one[T any](m maker, of []T) T { return of[m.IntN(len(of))] }

// chance is true with the given probability, in percent.
func (m maker) chance(percent int) bool { return m.IntN(100) < percent }

// kind is one of possible events, with its relative frequency.
type kind struct {
	name   string
	weight int
	make   func(maker) (string, func(*world))
}

// laterShare is how often one of the later kinds follows one of the others, in percent.
const laterShare = 20

// kinds are the possible events.
var kinds = []kind{
	{"pass", 20, maker.passing},
	{"split", 6, maker.split},
	{"one-way", 4, maker.oneWay},
	{"heal", 8, maker.heal},
	{"poor", 4, maker.poor},
	{"reset", 3, maker.reset},
	{"flap", 2, maker.flap},
	{"refuse", 3, maker.refuse},
	{"answer", 4, maker.answer},
	{"crash", 3, maker.crash},
	{"stop", 2, maker.stop},
	{"start", 6, maker.start},
	{"store", 4, maker.storeAccess},
	{"source", 4, maker.sourceAccess},
	{"select", 6, maker.selects},
	{"export", 16, maker.exported},
	{"know", 4, maker.knows},
	{"instances", 14, maker.moves},
	{"sidecar", 4, maker.sidecarMoves},
	{"call", 14, maker.calls},
	{"pod", 4, maker.podFalls},
	{"cut", 4, maker.cut},
	{"restart", 3, maker.restart},
	{"mute", 2, maker.mute},
	{"calm", 1, maker.calm},
	{"almost", 1, maker.almost},
}

// later are kinds that came later. They have a random source of their own, so that the others of a seed
// stay as they were.
var later = []kind{
	{"clock", 4, maker.clock},
	{"overtake", 4, maker.overtake},
	{"old", 4, maker.old},
	{"owner", 4, maker.owns},
	{"hand-over", 2, maker.handsOverActors},
}

// newPlan makes the plan of a seed, without some kinds of steps.
func newPlan(seed uint64, steps int, without []string) *plan {
	m := maker{rand.New(rand.NewPCG(seed, 42))}
	p := &plan{seed: seed, staleAfter: map[string]time.Duration{}}
	for _, name := range clusterNames {
		p.staleAfter[name] = one(m, []time.Duration{time.Second, 2 * time.Second, 2 * time.Second, 6 * time.Second, 10 * time.Second})
	}
	p.withCalls = m.chance(50)
	p.steps = append(p.steps, m.begin(p)...)
	more := maker{rand.New(rand.NewPCG(seed, 43))}
	for range steps {
		p.steps = append(p.steps, m.next(kinds, without)...)
		if more.chance(laterShare) {
			p.steps = append(p.steps, more.next(later, without)...)
		}
	}
	p.steps = append(p.steps, step{"calm", "", (*world).calm})
	return p
}

// next is a step of some kinds and a pause, or nothing if it is of a kind to leave out.
func (m maker) next(of []kind, without []string) []step {
	total := 0
	for _, k := range of {
		total += k.weight
	}
	at, i := m.IntN(total), 0
	for ; at >= of[i].weight; i++ {
		at -= of[i].weight
	}
	text, do := of[i].make(m)
	pause := m.pause()
	if slices.Contains(without, of[i].name) {
		return nil
	}
	return []step{{of[i].name, text, do}, {"pass", pause.String(), func(w *world) { w.pass(pause) }}}
}

// begin makes the initial state: clusters that know each other, run, and export some apps.
func (m maker) begin(p *plan) (steps []step) {
	add := func(kind, text string, do func(*world)) { steps = append(steps, step{kind, text, do}) }
	near := m.chance(60) // clusters on one network know that from the start
	for _, name := range clusterNames {
		for _, other := range clusterNames {
			if other != name {
				network := ""
				if near {
					network = networkOf[other]
				}
				add("know", name+" knows "+other, func(w *world) { w.know(name, object(other, w.cluster(other).staleAfter, []int{0, 1}, 0, network)) })
			}
		}
		for range 3 {
			text, do := m.selectsIn(name)
			add("select", text, do)
			text, do = m.exportedBy(name)
			add("export", text, do)
		}
		for range 4 {
			text, do := m.movesIn(name)
			add("instances", text, do)
		}
	}
	for _, name := range clusterNames {
		for i := range replicasOf[name] {
			add("start", fmt.Sprintf("%s-%d", name, i), func(w *world) { w.cluster(name).replicas[i].start(false) })
		}
	}
	pause := time.Duration(m.IntN(8000)) * time.Millisecond
	add("pass", pause.String(), func(w *world) { w.pass(pause) })
	return steps
}

// pause is the wait before the next step, mostly too short for anything to settle.
func (m maker) pause() time.Duration {
	return one(m, []time.Duration{
		0, 0, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond,
		500 * time.Millisecond, time.Second, 2 * time.Second,
	})
}

func (m maker) passing() (string, func(*world)) {
	d := one(m, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 12 * time.Second})
	if m.chance(3) {
		d = one(m, []time.Duration{30 * time.Second, 3 * time.Minute})
	}
	return d.String(), func(w *world) { w.pass(d) }
}

// pair is a replica and a gateway of another cluster.
func (m maker) pair() (host, gateway string) {
	from := one(m, clusterNames)
	to := one(m, slices.DeleteFunc(slices.Clone(clusterNames), func(name string) bool { return name == from }))
	return fmt.Sprintf("%s-%d", from, m.IntN(replicasOf[from])), fmt.Sprintf("%s-gw-%d", to, m.IntN(replicasOf[to]))
}

// between returns the pairs of a step: one, or all between two clusters.
func (m maker) between() (text string, pairs [][2]string) {
	host, gateway := m.pair()
	if m.chance(40) {
		return host + " and " + gateway, [][2]string{{host, gateway}}
	}
	a, b := host[:strings.Index(host, "-")], gateway[:strings.Index(gateway, "-")]
	for _, side := range [][2]string{{a, b}, {b, a}} {
		for i := range replicasOf[side[0]] {
			for j := range replicasOf[side[1]] {
				pairs = append(pairs, [2]string{fmt.Sprintf("%s-%d", side[0], i), fmt.Sprintf("%s-gw-%d", side[1], j)})
			}
		}
	}
	return a + " and " + b, pairs
}

// paths is a step that changes both directions of some pairs.
func paths(pairs [][2]string, p peeringtest.Path) func(*world) {
	return func(w *world) {
		for _, pair := range pairs {
			w.path(pair[0], pair[1], p)
			w.path(pair[1], pair[0], p)
		}
	}
}

func (m maker) split() (string, func(*world)) {
	text, pairs := m.between()
	return text, paths(pairs, peeringtest.Path{Down: true})
}

func (m maker) heal() (string, func(*world)) {
	if m.chance(30) {
		return "everything", (*world).heal
	}
	text, pairs := m.between()
	return text, paths(pairs, peeringtest.Path{})
}

// oneWay loses packets in one direction between two clusters.
func (m maker) oneWay() (string, func(*world)) {
	_, pairs := m.between()
	a, b := pairs[0][0], pairs[0][1]
	from, to := a[:strings.Index(a, "-")], b[:strings.Index(b, "-")]
	return "from " + from + " to " + to, func(w *world) {
		for _, pair := range pairs {
			if strings.HasPrefix(pair[0], from+"-") {
				w.path(pair[0], pair[1], peeringtest.Path{Down: true})
			} else {
				w.path(pair[1], pair[0], peeringtest.Path{Down: true})
			}
		}
	}
}

func (m maker) poor() (string, func(*world)) {
	text, pairs := m.between()
	p := peeringtest.Path{
		Delay: time.Duration(m.IntN(200)) * time.Millisecond, Jitter: time.Duration(m.IntN(100)) * time.Millisecond, Loss: 0.2 * m.Float64(),
	}
	return fmt.Sprintf("%s: delay %s, jitter %s, loss %.2f", text, p.Delay, p.Jitter, p.Loss), paths(pairs, p)
}

func (m maker) reset() (string, func(*world)) {
	text, pairs := m.between()
	return text, func(w *world) {
		for _, pair := range pairs {
			w.net.Reset(pair[0], pair[1])
		}
	}
}

// flap splits and heals again and again.
func (m maker) flap() (string, func(*world)) {
	text, pairs := m.between()
	times, period, lapses := 2+m.IntN(4), time.Duration(500+m.IntN(4000))*time.Millisecond, m.chance(40)
	return fmt.Sprintf("%s %d times for %s, until leases end: %v", text, times, period, lapses), func(w *world) {
		if lapses {
			period = w.cluster(pairs[0][1][:strings.Index(pairs[0][1], "-")]).staleAfter + slack
		}
		for range times {
			paths(pairs, peeringtest.Path{Down: true})(w)
			w.pass(period)
			paths(pairs, peeringtest.Path{})(w)
			w.pass(period / 2)
		}
	}
}

func (m maker) gateway() (text string, which func(*world) *gateway) {
	name := one(m, clusterNames)
	i := m.IntN(replicasOf[name])
	return fmt.Sprintf("%s-gw-%d", name, i), func(w *world) *gateway { return w.cluster(name).gateways[i] }
}

func (m maker) refuse() (string, func(*world)) {
	text, which := m.gateway()
	return text, func(w *world) {
		g := which(w)
		g.up = false
		g.close()
	}
}

// answer makes a gateway accept connections, maybe for another replica.
func (m maker) answer() (string, func(*world)) {
	text, which := m.gateway()
	target := m.IntN(2)
	return fmt.Sprintf("%s for replica %d", text, target), func(w *world) {
		g := which(w)
		if t := g.cluster.replicas[target%len(g.cluster.replicas)]; t != g.target || g.hollow {
			g.close()
			g.target = t
		}
		g.up = true
		g.listen()
	}
}

func (m maker) replica() (host string, which func(*world) *replica) {
	name := one(m, clusterNames)
	i := m.IntN(replicasOf[name])
	return fmt.Sprintf("%s-%d", name, i), func(w *world) *replica { return w.cluster(name).replicas[i] }
}

func (m maker) crash() (string, func(*world)) {
	host, which := m.replica()
	return host, func(w *world) { which(w).stop(true) }
}

func (m maker) stop() (string, func(*world)) {
	host, which := m.replica()
	return host, func(w *world) { which(w).stop(false) }
}

// start starts a replica if it does not run, with or without its instances.
func (m maker) start() (string, func(*world)) {
	host, which := m.replica()
	memory := m.chance(50)
	return fmt.Sprintf("%s, memory %v", host, memory), func(w *world) {
		if r := which(w); r.service == nil {
			r.start(memory)
		}
	}
}

func (m maker) access(of func(*replica) *access) (string, func(*world)) {
	host, which := m.replica()
	if m.chance(40) {
		return host + " cut off", func(w *world) { of(which(w)).set(true, 0) }
	}
	delay := one(m, []time.Duration{0, 0, 20 * time.Millisecond, 500 * time.Millisecond, 4 * time.Second})
	return fmt.Sprintf("%s delayed by %s", host, delay), func(w *world) { of(which(w)).set(false, delay) }
}

func (m maker) storeAccess() (string, func(*world)) {
	return m.access(func(r *replica) *access { return r.store })
}

func (m maker) sourceAccess() (string, func(*world)) {
	return m.access(func(r *replica) *access { return r.source })
}

// old has the store of a replica answer older data, as a follower that lags does, or the newest again.
func (m maker) old() (string, func(*world)) {
	host, which := m.replica()
	by := one(m, []int{0, 0, 1, 2, 5})
	return fmt.Sprintf("%s by %d changes", host, by), func(w *world) { w.lag(which(w), by) }
}

// sidecarMoves moves a sidecar to another replica.
func (m maker) sidecarMoves() (string, func(*world)) {
	i, to := m.IntN(len(apps)), m.IntN(2)
	return fmt.Sprintf("%s in east to replica %d", apps[i], to), func(w *world) {
		c := w.cluster("east")
		c.sidecars[i].move(c.replicas[to])
	}
}

// mostLate is how late a connection may be.
const mostLate = 4 * time.Second

// overtake delays the connections that are open between a service and a gateway, or between a sidecar and
// what it is connected to. Later ones are not delayed, so what is sent on them comes before.
func (m maker) overtake() (string, func(*world)) {
	from, to := m.pair()
	in, i, sidecar := one(m, clusterNames), m.IntN(len(apps)), m.chance(50)
	late := time.Duration(500+m.IntN(int((mostLate-500*time.Millisecond).Milliseconds()))) * time.Millisecond
	if sidecar {
		from, to = in+"/"+apps[i].ID, "all"
	}
	again := m.chance(50)
	return fmt.Sprintf("what %s has open to %s is %s late; the sidecar starts again: %v", from, to, late, sidecar && again), func(w *world) {
		hosts := []string{to}
		if sidecar {
			hosts = append(w.hosts(), w.cluster(in).sidecars[i].at.host)
		}
		for _, host := range hosts {
			w.net.Hold(from, host, late)
		}
		if sidecar {
			d := w.cluster(in).sidecars[i]
			if d.late = true; again {
				d.restart(true)
			}
		}
	}
}

// hosts are those of pods and gateways.
func (w *world) hosts() (hosts []string) {
	for _, address := range slices.Sorted(maps.Keys(w.pods)) {
		host, _, _ := net.SplitHostPort(address)
		hosts = append(hosts, host)
	}
	for _, c := range w.clusters {
		for _, g := range c.gateways {
			hosts = append(hosts, g.host)
		}
	}
	return hosts
}

// calls has an app call the others, some rounds while the next steps happen.
func (m maker) calls() (string, func(*world)) {
	in, i, rounds := one(m, clusterNames), m.IntN(len(apps)), 1+m.IntN(12)
	pause := one(m, []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond, time.Second})
	takes := one(m, []time.Duration{0, 0, time.Millisecond, 50 * time.Millisecond, 2 * time.Second})
	how := work{takes, m.chance(20)}
	return fmt.Sprintf("%s in %s, %d rounds, %s between them, each takes %s, fails %v", apps[i], in, rounds, pause, takes, how.fails), func(w *world) {
		w.callsOf(w.cluster(in).sidecars[i], rounds, pause, how)
	}
}

// podFalls kills a pod, one with calls under way if there is any, and starts it again before anybody
// says so.
func (m maker) podFalls() (string, func(*world)) {
	n, away := m.IntN(100), time.Duration(m.IntN(3000))*time.Millisecond
	return fmt.Sprintf("%d falls for %s", n, away), func(w *world) {
		addresses := slices.Sorted(maps.Keys(w.pods))
		idle := func(address string) bool { return w.pods[address].busy.Load() == 0 }
		if busy := slices.DeleteFunc(slices.Clone(addresses), idle); len(busy) > 0 {
			addresses = busy
		} else if len(addresses) == 0 {
			return
		}
		address := addresses[n%len(addresses)]
		w.pods[address].kill()
		w.fallen = address
		w.pass(away)
		w.fallen = ""
		if p := w.pods[address]; p != nil {
			p.start()
		}
	}
}

// cut loses what a caller and a gateway or a pod send each other, in both directions or one.
func (m maker) cut() (string, func(*world)) {
	in, i, n, away := one(m, clusterNames), m.IntN(len(apps)), m.IntN(100), time.Duration(m.IntN(8000))*time.Millisecond
	there, back := m.chance(70), m.chance(70)
	return fmt.Sprintf("%s in %s and %d for %s: %v, %v", apps[i], in, n, away, there, back), func(w *world) {
		hosts := w.hosts()
		from, to := w.cluster(in).sidecars[i].host, hosts[n%len(hosts)]
		w.net.SetPath(from, to, peeringtest.Path{Down: there})
		w.net.SetPath(to, from, peeringtest.Path{Down: back})
		w.pass(away)
		w.net.SetPaths(from, to, peeringtest.Path{})
	}
}

// restart restarts the sidecars of an app, with or without the last good view.
func (m maker) restart() (string, func(*world)) {
	in, i, disk := one(m, clusterNames), m.IntN(len(apps)), m.chance(50)
	return fmt.Sprintf("%s in %s, its disk stays: %v", apps[i], in, disk), func(w *world) {
		w.cluster(in).sidecars[i].restart(disk)
	}
}

// mute withdraws an export while no exports of its cluster get through to others, until nobody may go
// by it any more.
func (m maker) mute() (string, func(*world)) {
	in, n := one(m, clusterNames), m.IntN(len(apps))
	return fmt.Sprintf("%s, which withdraws export %d", in, n), func(w *world) {
		c := w.cluster(in)
		c.mute.Store(true)
		_, all, _ := c.objects.newest()
		for i := range apps {
			key := (&catalog.AppExport{App: apps[(n+i)%len(apps)]}).Key()
			e, _ := all[key].(*catalog.AppExport)
			if e != nil && slices.ContainsFunc(e.Allow, func(a catalog.Allow) bool { return a.Outward(in) }) {
				w.remove(in, key)
				break
			}
		}
		w.pass(c.behindMost() + 3*time.Second)
		c.mute.Store(false)
	}
}

func (m maker) calm() (string, func(*world)) { return "", (*world).calm }

func names(of []kind) (all []string) {
	for _, k := range of {
		all = append(all, k.name)
	}
	return all
}
