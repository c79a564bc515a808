package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// What another replica wrote of an instance that is unverified is so here, too, and what no
// instance can be is refused by name.
func TestWhatOthersWroteIsHeldToTheSame(t *testing.T) {
	o := newReplicated()
	delegated := orders("203.0.113.1/10.0.0.1:50002", "10.0.0.1:50002")
	delegated.Unverified, delegated.Draining = true, true
	own, metadata := orders("b", "10.0.0.2:50002"), orders("c", "169.254.169.254:80")
	var pairs []pair
	for n, i := range []catalog.Instance{delegated, own, metadata} {
		pairs = append(pairs, pair{key: keyOf(key(i)), value: []byte(encode(&i, "r2")), lease: 2 * leasesPerReplica, revision: int64(n + 1)})
	}
	c := o.apply(pairs, leasesPerReplica)
	if len(c.Put) != 2 || c.Put[0] != delegated || c.Put[1] != own {
		t.Errorf("read %+v; want %+v and %+v", c.Put, delegated, own)
	}
	if refused := o.refusals(); len(refused) != 1 || !strings.Contains(refused[0].Err.Error(), "link-local") {
		t.Errorf("refused %+v", refused)
	}
}

// A server that is away again and again has everything read anew each time, which lets
// nothing stand for longer.
func TestWhatIsMissingWithItsReplicaStandsForSoLongAndNoLonger(t *testing.T) {
	const theirs, ttl = 2 * leasesPerReplica, 15 * time.Second
	orphan := orders("a", "10.0.0.1:50002")
	o, begin := newReplicated(), time.Now()
	_ = o.reset([]pair{
		{key: replicas + "40", value: []byte(`{}`), lease: theirs, revision: 1},
		{key: "shop/orders/a", value: []byte(encode(&orphan, "b")), lease: theirs, revision: 2},
	}, leasesPerReplica, begin, ttl)
	for after := time.Second; after < 3*ttl; after += 5 * time.Second {
		c := o.reset(nil, leasesPerReplica, begin.Add(after), ttl)
		if stands := len(c.Put) == 1; stands != (after < ttl+time.Second) {
			t.Errorf("after %s it stands: %t", after, stands)
		}
	}
}

// A replica that ends again and again, each time before its lease has, leaves nothing behind:
// so a stranger that comes then is told of, and what stands without its replica stands for as
// long as ever.
func TestReplicasThatHaveGoneTakeNobodysPlace(t *testing.T) {
	const ttl = 15 * time.Second
	o, begin, revision := newReplicated(), time.Now(), int64(0)
	life := func(n int64) []pair {
		i := orders(fmt.Sprint(n), "10.0.0.1:50002")
		return []pair{
			{key: fmt.Sprintf("%s%x", replicas, n*leasesPerReplica), value: []byte(`{"replica":"r2","common":{"network":"n"}}`), lease: n * leasesPerReplica},
			{key: keyOf(key(i)), value: []byte(encode(&i, "r2")), lease: n * leasesPerReplica},
		}
	}
	happens := func(pairs ...pair) {
		for n := range pairs {
			revision++
			pairs[n].revision = revision
		}
		_ = o.apply(pairs, leasesPerReplica)
	}
	_ = o.reset(nil, leasesPerReplica, begin, ttl)
	for n := int64(2); n < mostReplicas+100; n++ {
		of := life(n)
		happens(of...)
		if n%3 == 0 { // its presence ends before what else it wrote, or after it, or together with it
			of[0], of[1] = of[1], of[0]
		}
		for i := range of {
			of[i].deleted, of[i].value, of[i].lease = true, nil, 0
		}
		if n%3 == 1 {
			happens(of...)
			continue
		}
		happens(of[0])
		happens(of[1])
	}
	if len(o.present)+len(o.held)+len(o.known) > 0 {
		t.Errorf("of those that have gone are remembered %d, and %d with keys of %d", len(o.present), len(o.held), len(o.known))
	}
	happens(life(5000)...)
	self := member{Replica: "r1", Common: map[string]string{"network": ""}}
	if all := o.strangers(self, leasesPerReplica, "west"); len(all) != 1 {
		t.Errorf("a stranger that comes later: %v", all)
	}
	if c := o.reset(nil, leasesPerReplica, begin, ttl); len(c.Put) != 1 {
		t.Errorf("what stands after etcd has lost it: %v", c.Put)
	}
	if c := o.expire(begin.Add(ttl)); len(c.Delete) != 1 || len(o.held) > 0 {
		t.Errorf("after its time: %v, and %d with keys", c.Delete, len(o.held))
	}
}

// One whose presence has gone is remembered while something of it stands: where etcd then
// loses what it has, that still has its time.
func TestAReplicaIsRememberedWhileItsInstancesStand(t *testing.T) {
	const theirs, ttl = 2 * leasesPerReplica, 15 * time.Second
	a, b := orders("a", "10.0.0.1:50002"), orders("b", "10.0.0.2:50002")
	o, begin := newReplicated(), time.Now()
	_ = o.apply([]pair{
		{key: replicas + "40", value: []byte(`{}`), lease: theirs, revision: 1},
		{key: "shop/orders/a", value: []byte(encode(&a, "b")), lease: theirs, revision: 2},
		{key: "shop/orders/b", value: []byte(encode(&b, "b")), lease: theirs, revision: 3},
	}, leasesPerReplica)
	_ = o.apply([]pair{{key: replicas + "40", deleted: true, revision: 4}, {key: "shop/orders/a", deleted: true, revision: 5}}, leasesPerReplica)
	_ = o.apply([]pair{{key: "shop/orders/b", value: []byte(encode(&b, "b")), lease: theirs, revision: 6}}, leasesPerReplica)
	if c := o.reset(nil, leasesPerReplica, begin, ttl); len(c.Put) != 1 || c.Put[0] != b {
		t.Errorf("what stands: %v", c.Put)
	}
}
