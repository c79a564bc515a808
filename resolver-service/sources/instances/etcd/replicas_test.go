package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

func orders(id, address string) catalog.Instance {
	return catalog.Instance{App: catalog.App{Namespace: "shop", ID: "orders"}, ID: id, Address: netip.MustParseAddrPort(address)}
}

func never(t testing.TB) func() {
	return func() { t.Error("a sidecar that is still here was taken for one that has moved") }
}

// replica is one replica at work. end stops it as kill -9 does: nothing is said.
type replica struct {
	*Source
	end func()
}

func (p *place) replica(t testing.TB, name, address string) replica {
	t.Helper()
	return p.replicaFor(t, name, address, time.Minute)
}

// replicaFor has leases that last for so long.
func (p *place) replicaFor(t testing.TB, name, address string, ttl time.Duration) replica {
	t.Helper()
	c := p.config(t, address, p.user)
	c.TTL = ttl
	s := openAs(t, c, name)
	return replica{s, run(t, s.Run)}
}

func (p *place) awaitStored(t testing.TB, want ...string) {
	t.Helper()
	serverstest.Await(t, fmt.Sprintf("etcd has %v; at last %v", want, p.stored(t)), func() bool {
		stored := p.stored(t)
		for _, key := range want {
			if stored[key] == "" {
				return false
			}
		}
		return len(stored) == len(want)
	})
}

func TestWhatIsRegisteredHereIsLeftOut(t *testing.T) {
	p := newPlace(t, &plain)
	first, second := p.replica(t, "r1", p.Server.Addr()), p.replica(t, "r2", p.Server.Addr())
	seenByFirst, seenBySecond := follow(t, first.Source), follow(t, second.Source)
	first.registers(orders("a", "10.0.0.1:50002"), never(t))
	second.registers(orders("b/c %?", "10.0.0.2:50002"), never(t))
	seenByFirst.await(t, "shop/orders/b%2Fc%20%25%3F=10.0.0.2:50002")
	seenBySecond.await(t, "shop/orders/a=10.0.0.1:50002")
	first.Drain(key(orders("a", "10.0.0.1:50002")))
	seenBySecond.await(t, "shop/orders/a=10.0.0.1:50002!")
	first.Withdraw(key(orders("a", "10.0.0.1:50002")))
	seenBySecond.await(t, "")
}

// Replicas tell each other which clusters they hear, once they have settled.
func TestReplicasTellWhomTheyHear(t *testing.T) {
	p := newPlace(t, &plain)
	first, second := p.replica(t, "r1", p.Server.Addr()), p.replica(t, "r2", p.Server.Addr())
	follow(t, first.Source)
	await := func(want string) {
		t.Helper()
		serverstest.Await(t, "the first knows "+want, func() bool { return fmt.Sprint(first.Members()) == want })
	}
	second.Hears([]string{"north", "east"})
	second.Settle()
	await("[{r2 [east north]}]")
	second.Hears(nil)
	await("[{r2 []}]")
}

// A sidecar goes from the first replica to the second, and the first notices late.
func TestASidecarThatMovesIsNeverAway(t *testing.T) {
	p := newPlace(t, &plain)
	first, second := p.replica(t, "r1", p.Server.Addr()), p.replica(t, "r2", p.Server.Addr())
	third := follow(t, p.open(t))
	seenByFirst, seenBySecond := follow(t, first.Source), follow(t, second.Source)
	a := orders("a", "10.0.0.1:50002")
	var taken atomic.Int32
	first.registers(a, func() { taken.Add(1) })
	third.await(t, "shop/orders/a=10.0.0.1:50002")
	seenBySecond.await(t, "shop/orders/a=10.0.0.1:50002")

	second.registers(a, func() { taken.Add(1) })
	seenByFirst.await(t, "shop/orders/a=10.0.0.1:50002")
	seenBySecond.await(t, "") // it is its own now
	serverstest.Await(t, "the first is told", func() bool { return taken.Load() == 1 })
	first.Drain(key(a))
	first.Withdraw(key(a))
	b := orders("b", "10.0.0.2:50002")
	first.registers(b, never(t)) // is written after the withdrawal
	third.await(t, "shop/orders/a=10.0.0.1:50002 shop/orders/b=10.0.0.2:50002")
	if gone := third.lost(); len(gone) > 0 {
		t.Errorf("a third replica was told that %v had gone", gone)
	}
	// And back, which is another registration.
	first.registers(a, never(t))
	seenBySecond.await(t, "shop/orders/a=10.0.0.1:50002 shop/orders/b=10.0.0.2:50002")
	serverstest.Await(t, "the second is told", func() bool { return taken.Load() == 2 })
}

// TestAReplicaThatEndsLeavesItsInstancesToItsLease, and the one that comes back elsewhere is
// never away. A lease runs out while a machine stands still, and what is next comes too late:
// then it is tested again, with a longer one.
func TestAReplicaThatEndsLeavesItsInstancesToItsLease(t *testing.T) {
	t.Parallel()
	for try := 1; ; try++ {
		lease := min(12*time.Second*time.Duration(try), 36*time.Second) // serverstest.Await waits for a minute
		err := leavesToItsLease(t, lease)
		switch {
		case err == nil:
			return
		case try == stalls.Tries:
			t.Fatalf("with a lease of %s: %v", lease, err)
		}
		t.Logf("with a lease of %s: %v; again", lease, err)
	}
}

func leavesToItsLease(t *testing.T, lease time.Duration) error {
	p := newPlace(t, &plain)
	first, second := p.replicaFor(t, "r1", p.Server.Addr(), lease), p.replica(t, "r2", p.Server.Addr())
	seen := follow(t, p.open(t))
	first.registers(orders("a", "10.0.0.1:50002"), never(t))
	first.registers(orders("b", "10.0.0.2:50002"), never(t))
	seen.await(t, "shop/orders/a=10.0.0.1:50002 shop/orders/b=10.0.0.2:50002")
	ended := time.Now()
	first.end()
	second.registers(orders("a", "10.0.0.1:50002"), never(t))
	seen.await(t, "shop/orders/a=10.0.0.1:50002") // the one that came back
	if gone := seen.lost(); !slices.Equal(gone, []string{"shop/orders/b"}) {
		return fmt.Errorf("%v had gone; want b alone", gone)
	}
	stood := time.Since(ended)
	if stood < lease/2 {
		return fmt.Errorf("the other was withdrawn after %s", stood)
	}
	t.Logf("an instance that did not come back stood for %s, with a lease of %s", stood.Round(10*time.Millisecond), lease)
	return nil
}

func TestALeaseThatIsLostIsGotAgain(t *testing.T) {
	p := newPlace(t, &plain)
	first := p.replica(t, "r1", p.Server.Addr())
	follow(t, first.Source)
	seen := follow(t, p.open(t))
	a := orders("a", "10.0.0.1:50002")
	first.registers(a, never(t))
	seen.await(t, "shop/orders/a=10.0.0.1:50002")
	created := func() int64 {
		answer, err := p.Admin.Get(t.Context(), first.root+keyOf(key(a)))
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Kvs) == 0 {
			return 0
		}
		return answer.Kvs[0].CreateRevision
	}
	before := created()
	// As when the process stood still for longer than the lease.
	if _, err := p.Admin.Revoke(t.Context(), clientv3.LeaseID(first.leases.of(keyOf(key(a))))); err != nil {
		t.Fatal(err)
	}
	serverstest.Await(t, "it is written again", func() bool { return created() > before })
	before = created()
	// And a key that somebody deletes.
	if _, err := p.Admin.Delete(t.Context(), first.root+keyOf(key(a))); err != nil {
		t.Fatal(err)
	}
	serverstest.Await(t, "it is written again", func() bool { return created() > before })
	seen.await(t, "shop/orders/a=10.0.0.1:50002")
}

func TestAReplicaThatWasCutOffWritesEverythingAgain(t *testing.T) {
	p := newPlace(t, &plain)
	first, second := p.replicaFor(t, "r1", p.Link.Addr(), shortestTTL), p.replica(t, "r2", p.Server.Addr())
	seenByFirst, seen := follow(t, first.Source), follow(t, second.Source)
	for n := range 300 {
		first.registers(orders(fmt.Sprint("a", n), fmt.Sprintf("10.0.1.%d:%d", n%250+1, 50000+n)), func() {})
	}
	second.registers(orders("b", "10.0.0.2:50002"), never(t))
	count := func(n int) func() bool {
		return func() bool { return strings.Count(seen.has(), "=") == n }
	}
	serverstest.Await(t, "all are seen", count(300))
	seenByFirst.await(t, "shop/orders/b=10.0.0.2:50002")

	mend := p.Link.Fail(t)
	serverstest.Await(t, "they are withdrawn with their lease", count(0))
	seenByFirst.await(t, "shop/orders/b=10.0.0.2:50002") // what was heard last stands
	time.Sleep(5 * time.Second)                          // as long as it takes for pauses to become long
	moved, gone := orders("a7", "10.0.1.8:50007"), orders("a8", "10.0.1.9:50008")
	second.registers(moved, never(t)) // meanwhile it went to the second
	first.Withdraw(key(gone))
	first.registers(orders("new", "10.0.0.9:50002"), func() {})
	mend()
	back := time.Now()
	serverstest.Await(t, "all but two are seen again, and the new one", count(299))
	t.Logf("299 instances were written again and seen %s after etcd's return", time.Since(back).Round(time.Millisecond))
	if value := p.stored(t)[keyOf(key(moved))]; !strings.Contains(value, `"r2"`) {
		t.Errorf("the one that moved has become %s", value)
	}
}

func TestWhatEtcdLosesStandsUntilItsReplicaIsBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	open := func(name string) *Source {
		return openAs(t, Config{Config: etcdclient.Config{Endpoints: []string{etcd.Addr()}}, TTL: 15 * time.Second}, name)
	}
	first, second, third := open("r1"), open("r2"), open("r3")
	run(t, first.Run)
	endSecond := run(t, second.Run)
	follow(t, first)
	first.registers(orders("a", "10.0.0.1:50002"), never(t))
	second.registers(orders("b", "10.0.0.2:50002"), never(t))
	seen := follow(t, third)
	seen.await(t, "shop/orders/a=10.0.0.1:50002 shop/orders/b=10.0.0.2:50002")
	serverstest.Await(t, "both replicas are known", func() bool {
		third.replicated.mu.Lock()
		defer third.replicated.mu.Unlock()
		return len(third.replicated.present) == 2
	})
	if err := etcd.Kill(); err != nil {
		t.Fatal(err)
	}
	endSecond() // this one is not coming back
	if err := os.RemoveAll(filepath.Clean(etcd.Data())); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	seen.await(t, "shop/orders/a=10.0.0.1:50002")
	if gone := seen.lost(); !slices.Equal(gone, []string{"shop/orders/b"}) {
		t.Errorf("%v had gone; want b alone", gone)
	}
}

func TestAReplicaThatMayNotWriteSaysSo(t *testing.T) {
	p := newPlace(t, &secure)
	reader := p.newUser(t, clientv3.PermRead)
	s := openAs(t, p.config(t, p.Server.Addr(), reader), "r1")
	run(t, s.Run)
	s.registers(orders("a", "10.0.0.1:50002"), never(t))
	f := follow(t, s)
	serverstest.Await(t, "the status says why", func() bool {
		status := f.Status()
		return status.Err == nil && len(status.Refused) == 1 && strings.Contains(status.Refused[0].Where, "r1") &&
			strings.Contains(status.Refused[0].Err.Error(), "grant-permission")
	})
	if _, err := p.Admin.RoleGrantPermission(t.Context(), reader, s.root, clientv3.GetPrefixRangeEnd(s.root), clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	p.awaitStored(t, "shop/orders/a")
	serverstest.Await(t, "the status says that all is well", func() bool { return f.Status().RefusedCount == 0 })
}

// How long another replica needs to see what registers here, and what goes.
func TestHowSoonOthersKnow(t *testing.T) {
	p := newPlace(t, &plain)
	first := p.replica(t, "r1", p.Server.Addr())
	seen := follow(t, p.open(t))
	const rounds = 200
	var came, went []time.Duration
	a := orders("a", "10.0.0.1:50002")
	for range rounds {
		begin := time.Now()
		first.registers(a, never(t))
		serverstest.Await(t, "it is seen", func() bool { return seen.has() != "" })
		came = append(came, time.Since(begin))
		begin = time.Now()
		first.Withdraw(key(a))
		serverstest.Await(t, "it has gone", func() bool { return seen.has() == "" })
		went = append(went, time.Since(begin))
	}
	for what, all := range map[string][]time.Duration{"a registration": came, "a withdrawal": went} {
		slices.Sort(all)
		t.Logf("another replica knew of %s after p50 %s, p99 %s", what, all[rounds/2].Round(100*time.Microsecond), all[rounds*99/100].Round(100*time.Microsecond))
	}
}

func TestMistakesInTheConfigurationAreNamed(t *testing.T) {
	one := etcdclient.Config{Endpoints: []string{"127.0.0.1:2379"}}
	for want, c := range map[string]Config{
		"endpoints: is missing":    {},
		"ttl: 1s is out of bounds": {Config: one, TTL: time.Second},
		"ttl: 1h0m0s is out":       {Config: one, TTL: time.Hour},
	} {
		if _, err := Open(c, "west", "r1", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
	if _, err := Open(Config{Config: one}, "no cluster", "r1", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a cluster's name with a blank was taken")
	}
}

// FuzzDecode holds that what is read can be written: it is read as the same, and is no longer
// than what is taken.
func FuzzDecode(f *testing.F) {
	i := orders("a/b", "10.0.0.1:50002")
	f.Add(keyOf(key(i)), encode(&i, "r1"))
	f.Add("shop/orders/%61", `{"address":"[::ffff:10.0.0.1]:1"}`)
	f.Add("a/b/c/d", `{"address":"10.0.0.1:1"} {}`)
	f.Add("a/b/c", `{"address":"10.0.0.1:1","calls":"shop/orders"}`)
	f.Add("_replicas/1", `"r1"`)
	f.Add("a/b/c", `{"address":"[fe80::1%a]b:<]:1"}`)
	f.Add("a/b/c", `{"address":"[fe80::1%`+strings.Repeat("&", 700)+`]:1"}`)
	for _, text := range []string{"<", "\u2028", "\xff", `\u0000`} { // what becomes longer as it is written
		f.Add("a/b/c", `{"address":"10.0.0.1:1","zone":"`+strings.Repeat(text, 680)+`"}`)
	}
	f.Fuzz(func(t *testing.T, where, text string) {
		i, err := decode(where, []byte(text))
		if err != nil {
			return
		}
		if keyOf(key(i)) != where {
			t.Errorf("%q was read as %q", where, keyOf(key(i)))
		}
		const zone = 63 // bytes; what is beyond is left out of every instance
		i.Zone = strings.ToValidUTF8(i.Zone[:min(len(i.Zone), zone)], "")
		written := encode(&i, "r1")
		if len(written) > maxValue-3<<10 { // which leaves room for the name of a replica
			t.Errorf("%q is written in %d bytes", text, len(written))
		}
		again, err := decode(where, []byte(written))
		if err != nil || again != i {
			t.Errorf("%+v became %+v, %v", i, again, err)
		}
	})
}

// A replica with thousands of sidecars is killed, and all come to another at once.
func TestManySidecarsMoveAtOnce(t *testing.T) {
	const sidecars = 5000
	p := newPlace(t, &secure)
	first, second := p.replica(t, "r1", p.Server.Addr()), p.replica(t, "r2", p.Server.Addr())
	seen := follow(t, p.open(t))
	all := make([]catalog.Instance, sidecars)
	for n := range all {
		all[n] = orders(fmt.Sprint(n), fmt.Sprintf("10.0.%d.%d:50002", n/250, n%250+1))
		first.registers(all[n], func() {})
	}
	serverstest.Await(t, "all are seen", func() bool { return len(seen.Stands()) == sidecars })
	first.end()
	begin := time.Now()
	for _, i := range all {
		second.registers(i, never(t))
	}
	serverstest.Await(t, "all are written by the second", func() bool {
		second.registered.mu.Lock()
		defer second.registered.mu.Unlock()
		for _, h := range second.registered.held {
			if h.unwritten {
				return false
			}
		}
		return true
	})
	took := time.Since(begin)
	if lost := seen.lost(); len(lost) > 0 && took < second.leases.ttl {
		t.Errorf("%d of %d were taken away, such as %s", len(lost), sidecars, lost[0])
	}
	t.Logf("%d sidecars that moved were written in %s", sidecars, took.Round(time.Millisecond))
}
