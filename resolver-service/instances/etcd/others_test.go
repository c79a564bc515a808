package etcd

import (
	"testing"
	"time"
)

// A server that is away again and again has everything read anew each time, which lets
// nothing stand for longer.
func TestWhatIsMissingWithItsReplicaStandsForSoLongAndNoLonger(t *testing.T) {
	const theirs, ttl = 2 * leases, 15 * time.Second
	orphan := orders("a", "10.0.0.1:50002")
	o, begin := newOthers(), time.Now()
	_ = o.reset([]pair{
		{key: replicas + "40", value: []byte(`{}`), lease: theirs, revision: 1},
		{key: "shop/orders/a", value: []byte(encode(&orphan, "b", 0)), lease: theirs, revision: 2},
	}, leases, begin, ttl)
	for after := time.Second; after < 3*ttl; after += 5 * time.Second {
		c := o.reset(nil, leases, begin.Add(after), ttl)
		if stands := len(c.Put) == 1; stands != (after < ttl+time.Second) {
			t.Errorf("after %s it stands: %t", after, stands)
		}
	}
}
