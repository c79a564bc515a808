package stream

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// ledger knows the registered instances, the stream that holds each, and the changes that the
// topology does not have yet. It belongs to one goroutine.
type ledger struct {
	records   map[topology.InstanceKey]*record
	addresses map[place]*record // each has one holder
	// touched has the published state of each instance that may differ by now; nil for one that
	// is not published.
	touched map[topology.InstanceKey]*catalog.Instance
}

// place is an address. Who registered it from there holds it, whoever else names it from
// somewhere else: that one is unverified and holds the same address beside it.
type place struct {
	netip.AddrPort
	unverified bool
}

func placeOf(i *catalog.Instance) place { return place{i.Address, i.Unverified} }

// record is one instance. It is replaced, never changed.
type record struct {
	instance catalog.Instance
	held     *registration // nil: restored, and its sidecar has not reconnected
}

func (r *record) key() topology.InstanceKey {
	return topology.KeyOf(&r.instance)
}

func newLedger() *ledger {
	return &ledger{
		records:   map[topology.InstanceKey]*record{},
		addresses: map[place]*record{},
		touched:   map[topology.InstanceKey]*catalog.Instance{},
	}
}

// restore adds an instance of the snapshot.
func (l *ledger) restore(i catalog.Instance) {
	if _, taken := l.addresses[placeOf(&i)]; !taken {
		l.set(&record{instance: i})
	}
}

// register adds an instance and returns the records that it replaces: that of the same instance,
// and that of the address.
func (l *ledger) register(held *registration) (replaced []*record) {
	key := held.key()
	if old := l.records[key]; old != nil {
		replaced = append(replaced, old)
	}
	if other := l.addresses[placeOf(&held.instance)]; other != nil && other.key() != key {
		replaced = append(replaced, other)
		l.remove(other.key())
	}
	l.set(&record{held.instance, held})
	return replaced
}

// drain marks an instance as draining if the registration still holds it.
func (l *ledger) drain(held *registration) {
	if r := l.records[held.key()]; r != nil && r.held == held {
		next := *r
		next.instance.Draining = true
		l.set(&next)
	}
}

// withdraw removes an instance if the registration still holds it.
func (l *ledger) withdraw(held *registration) {
	if r := l.records[held.key()]; r != nil && r.held == held {
		l.remove(held.key())
	}
}

// expire removes the restored instances whose sidecars have not reconnected.
func (l *ledger) expire() (gone []catalog.Instance) {
	for key, r := range l.records {
		if r.held == nil {
			gone = append(gone, r.instance)
			l.remove(key)
		}
	}
	return gone
}

func (l *ledger) set(r *record) {
	key := r.key()
	l.touch(key)
	if old := l.records[key]; old != nil {
		delete(l.addresses, placeOf(&old.instance))
	}
	l.records[key] = r
	l.addresses[placeOf(&r.instance)] = r
}

func (l *ledger) remove(key topology.InstanceKey) {
	l.touch(key)
	delete(l.addresses, placeOf(&l.records[key].instance))
	delete(l.records, key)
}

// touch keeps the published state of an instance before its first change.
func (l *ledger) touch(key topology.InstanceKey) {
	if _, noted := l.touched[key]; noted {
		return
	}
	var told *catalog.Instance
	if r := l.records[key]; r != nil {
		told = &r.instance
	}
	l.touched[key] = told
}

// flush is what there is to tell the topology.
func (l *ledger) flush() topology.InstanceChange {
	c := topology.InstanceChange{Source: Source, Rank: topology.Live}
	for key, told := range l.touched {
		now := l.records[key]
		switch {
		case now == nil && told != nil:
			c.Delete = append(c.Delete, key)
		case now != nil && (told == nil || now.instance != *told):
			c.Put = append(c.Put, now.instance)
		}
	}
	l.touched = map[topology.InstanceKey]*catalog.Instance{} // the old one may have grown large
	return c
}
