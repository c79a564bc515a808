package etcd

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// kept is a replica that keeps a registration of orders/a over its restarts.
type kept struct {
	replica
	address string
	since   int64
	taken   atomic.Bool
}

// openLasting opens a replica whose leases a machine that is slow does not miss.
func (p *place) openLasting(t testing.TB, name, address string) *Source {
	t.Helper()
	c := p.config(t, address, p.user)
	c.TTL = 5 * time.Minute
	return openAs(t, c, name)
}

// register has orders/a registered with a replica.
func (p *place) register(t *testing.T, name, address string) *kept {
	t.Helper()
	s := p.openLasting(t, name, p.Server.Addr())
	k := &kept{replica: replica{s, run(t, s.Run)}, address: address}
	follow(t, k.Source)
	k.since = k.Clock().Next()
	k.Share(since(orders("a", address), k.since), false, func() { k.taken.Store(true) })
	p.awaitOf(t, name)
	return k
}

// restart is the next life of a replica, with what it has kept.
func (p *place) restart(t *testing.T, before *kept) *kept {
	t.Helper()
	before.end()
	name := before.replica.Source.replica
	k := &kept{address: before.address, since: before.since}
	s := p.openLasting(t, name, p.Link.Addr())
	s.Share(since(orders("a", k.address), k.since), true, func() { k.taken.Store(true) })
	k.replica = replica{s, run(t, s.Run)}
	return k
}

// awaitOf waits until etcd has orders/a of a replica.
func (p *place) awaitOf(t testing.TB, name string) {
	t.Helper()
	serverstest.Await(t, "it is registered with "+name, func() bool { return strings.Contains(p.stored(t)["shop/orders/a"], `"`+name+`"`) })
}

// holds waits until a replica has written orders/a in this life.
func (p *place) holds(t testing.TB, k *kept) {
	t.Helper()
	serverstest.Await(t, "it is written by this life of "+k.Source.replica, func() bool {
		answer, err := p.Admin.Get(t.Context(), k.root+"shop/orders/a")
		return err == nil && len(answer.Kvs) == 1 && replicaOf(answer.Kvs[0].Lease) == k.leases.first
	})
}

func (k *kept) isTaken(t testing.TB) {
	t.Helper()
	serverstest.Await(t, k.Source.replica+" lets go", k.taken.Load)
}

// What a replica restores after a restart is not written over what registered elsewhere
// later; over what registered elsewhere before, it is.
func TestWhatIsRestoredYieldsToWhatIsNewer(t *testing.T) {
	const older, newer = "10.0.0.1:50002", "10.0.0.2:50002"
	for _, away := range []bool{false, true} { // etcd, while the replica starts
		began := func(t *testing.T, p *place, before *kept) *kept {
			t.Helper()
			if !away {
				return p.restart(t, before)
			}
			mend := p.Link.Fail(t)
			k := p.restart(t, before)
			serverstest.Await(t, "it has tried to write", func() bool {
				k.telling.Lock()
				defer k.telling.Unlock()
				return k.failing != nil
			})
			mend()
			return k
		}
		for name, test := range map[string]func(*testing.T, *place){
			"it registered elsewhere meanwhile": func(t *testing.T, p *place) {
				first := p.register(t, "r1", older)
				first.end()
				second := p.register(t, "r2", newer)
				again := began(t, p, first)
				seen := follow(t, again.Source)
				again.isTaken(t)
				seen.await(t, "shop/orders/a="+newer)
				again.Withdraw(key(orders("a", older))) // as who lets go does
				third := orders("b", older)
				again.registers(third, never(t)) // is written after that
				seenBySecond := follow(t, second.Source)
				seenBySecond.await(t, "shop/orders/b="+older)
				p.awaitOf(t, "r2")
				if second.taken.Load() {
					t.Error("the newer registration was taken")
				}
			},
			"it registered here last": func(t *testing.T, p *place) {
				second := p.register(t, "r2", older)
				first := p.register(t, "r1", newer)
				second.isTaken(t)
				again := began(t, p, first)
				follow(t, again.Source)
				p.holds(t, again)
				if again.taken.Load() {
					t.Error("its own registration was taken for another's")
				}
			},
			"both restart, and the older is first": func(t *testing.T, p *place) {
				first := p.register(t, "r1", older)
				first.end()
				second := p.register(t, "r2", newer)
				second.end()
				if _, err := p.Admin.Revoke(t.Context(), clientv3.LeaseID(second.leases.of("shop/orders/a"))); err != nil { // it has run out
					t.Fatal(err)
				}
				firstAgain := p.restart(t, first)
				follow(t, firstAgain.Source)
				p.holds(t, firstAgain)
				secondAgain := began(t, p, second)
				follow(t, secondAgain.Source)
				p.holds(t, secondAgain)
				firstAgain.isTaken(t)
			},
			"both restart, and the newer is first": func(t *testing.T, p *place) {
				first := p.register(t, "r1", older)
				first.end()
				second := p.register(t, "r2", newer)
				secondAgain := p.restart(t, second)
				follow(t, secondAgain.Source)
				p.holds(t, secondAgain)
				firstAgain := began(t, p, first)
				follow(t, firstAgain.Source)
				firstAgain.isTaken(t)
				if secondAgain.taken.Load() {
					t.Error("the newer registration was taken")
				}
			},
		} {
			if away {
				name += ", and etcd is away at first"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, newPlace(t, &plain))
			})
		}
	}
}

// A check that changes says how an instance is, and not that it has registered once more.
func TestAChangeIsNoRegistration(t *testing.T) {
	p := newPlace(t, &plain)
	first, second := p.register(t, "r1", "10.0.0.1:50002"), p.register(t, "r2", "10.0.0.2:50002")
	first.isTaken(t)
	first.taken.Store(false)
	changed := orders("a", "10.0.0.1:50002")
	changed.Draining = true
	first.Share(since(changed, first.since), false, func() { first.taken.Store(true) }) // before it has let go
	first.isTaken(t)
	p.holds(t, second)
	if second.taken.Load() {
		t.Error("the newer registration was taken")
	}
}

// A replica whose clock is behind says all the same that what registers with it comes later.
func TestWhoComesLaterIsLaterByAnyClock(t *testing.T) {
	p := newPlace(t, &plain)
	first, second := p.openLasting(t, "r1", p.Server.Addr()), p.openLasting(t, "r2", p.Server.Addr())
	run(t, first.Run)
	a := orders("a", "10.0.0.1:50002")
	ahead := time.Now().Add(time.Hour).UnixMilli()
	first.Share(since(a, ahead), false, never(t))
	seen := follow(t, second)
	seen.await(t, "shop/orders/a=10.0.0.1:50002")
	if since := second.Clock().Next(); since <= ahead {
		t.Errorf("%d; want more than %d", since, ahead)
	}
	if since := first.Clock().Next(); since <= ahead {
		t.Errorf("with the same replica %d; want more than %d", since, ahead)
	}
}

// A registration whose replica was away for longer than its lease, and so is in etcd no more,
// is earlier than one that comes elsewhere meanwhile, though the clock there is behind.
func TestWhatRegistersLaterIsLaterThanWhatHasGone(t *testing.T) {
	p := newPlace(t, &plain)
	first, second := p.openLasting(t, "r1", p.Server.Addr()), p.openLasting(t, "r2", p.Server.Addr())
	const older, newer = "10.0.0.1:50002", "10.0.0.2:50002"
	before := &kept{address: older, since: time.Now().Add(time.Hour).UnixMilli()} // the clock is ahead
	before.replica = replica{first, run(t, first.Run)}
	first.Share(since(orders("a", older), before.since), false, never(t))
	run(t, second.Run)
	seen := follow(t, second)
	seen.await(t, "shop/orders/a="+older)
	before.end()
	if _, err := p.Admin.Revoke(t.Context(), clientv3.LeaseID(first.leases.of("shop/orders/a"))); err != nil { // it has run out
		t.Fatal(err)
	}
	seen.await(t, "")
	second.Share(since(orders("a", newer), second.Clock().Next()), false, never(t))
	p.awaitOf(t, "r2")
	again := p.restart(t, before)
	seenByFirst := follow(t, again.Source)
	again.isTaken(t)
	seenByFirst.await(t, "shop/orders/a="+newer)
}

// What no replica can have written as a time is not counted on from.
func TestTimesFromOutsideAreBounded(t *testing.T) {
	s := &Source{registered: newRegistered(), replicated: newReplicated()}
	a := since(orders("a", "10.0.0.1:50002"), math.MaxInt64)
	c := s.replicated.apply([]pair{{key: keyOf(key(a)), value: []byte(encode(&a, "r2")), lease: 2 * leasesPerReplica, revision: 1}}, leasesPerReplica)
	first, second := s.Clock().Next(), s.Clock().Next()
	if first <= c.Put[0].Since || second <= first {
		t.Errorf("%d, and then %d, after %d", first, second, c.Put[0].Since)
	}
}

// How what stands, and what is told of it, come in any order.
func TestWhatIsRestoredIsLetGoOfOnce(t *testing.T) {
	const here, elsewhere = "r1", "r2"
	a := orders("a", "10.0.0.1:50002")
	of := func(replica string, at, revision int64) pair {
		i := since(a, at)
		return pair{key: "shop/orders/a", value: []byte(encode(&i, replica)), revision: revision}
	}
	says := func(revision int64) func(string) int64 { return func(string) int64 { return revision } }
	const at100 = 100
	for _, c := range []struct {
		what  string
		steps func(o *registered, e entry) (taken bool)
		kept  bool
		dirty bool
	}{
		{"nothing stands", func(o *registered, e entry) bool { return o.foundOther(e, pair{deleted: true}, here, says(0)) != nil }, true, true},
		{"what is older stands", func(o *registered, e entry) bool {
			return o.foundOther(e, of(elsewhere, at100-1, 10), here, says(10)) != nil
		}, true, true},
		{"its own of before stands", func(o *registered, e entry) bool { return o.foundOther(e, of(here, at100, 10), here, says(10)) != nil }, true, true},
		{"what is newer stands, as is known", func(o *registered, e entry) bool {
			return o.foundOther(e, of(elsewhere, at100+1, 10), here, says(10)) != nil
		}, false, false},
		{"what is newer stands, as is told later", func(o *registered, e entry) bool {
			return o.foundOther(e, of(elsewhere, at100+1, 10), here, says(0)) == nil && o.overwritten(of(elsewhere, at100+1, 10), here) != nil
		}, false, false},
		{"what is newer stood, and has gone by now", func(o *registered, e entry) bool {
			return o.foundOther(e, of(elsewhere, at100+1, 10), here, says(0)) == nil && o.missing("shop/orders/a", 20) != nil
		}, false, false},
		{"what is newer is told of first", func(o *registered, e entry) bool { return o.overwritten(of(elsewhere, at100+1, 10), here) != nil }, false, false},
		{"what is older is told of", func(o *registered, e entry) bool { return o.overwritten(of(elsewhere, at100-1, 10), here) != nil }, true, false},
		{"it registers once more meanwhile", func(o *registered, e entry) bool {
			o.held["shop/orders/a"] = &held{instance: since(a, at100+2), unwritten: true}
			return o.foundOther(e, of(elsewhere, at100+1, 10), here, says(10)) != nil || o.overwritten(of(elsewhere, at100+1, 10), here) != nil
		}, true, false},
	} {
		s := &Source{registered: newRegistered(), replicated: newReplicated()}
		s.Share(since(a, at100), true, func() {})
		taken := c.steps(s.registered, s.registered.take(1)[0])
		if kept := len(s.registered.keys()) == 1; kept != c.kept || taken == c.kept || len(s.registered.dirty) > 0 != c.dirty {
			t.Errorf("%s: kept %t, taken %t, to be written %t", c.what, kept, taken, len(s.registered.dirty) > 0)
		}
	}
}
