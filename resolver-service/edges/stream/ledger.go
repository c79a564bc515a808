package stream

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// ledger knows the registered instances, the stream that holds each, and the changes that the
// topology does not have yet. It belongs to one goroutine.
type ledger struct {
	apps      map[catalog.App][]*record // of each app, by ID
	count     int                       // of all records
	addresses map[place]*record         // each has one holder
	// touched has the published state of each instance that may differ by now; nil for one that
	// is not published.
	touched map[topology.InstanceKey]*catalog.Instance
}

// place is an address. Who registered it from there holds it, whoever else names it from
// somewhere else: that one is unverified and holds the same address beside it.
type place struct {
	ip         netip.Addr
	port       uint16
	unverified bool
}

func placeOf(i *catalog.Instance) place {
	return place{i.Address.Addr(), i.Address.Port(), i.Unverified}
}

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
		apps:      map[catalog.App][]*record{},
		addresses: map[place]*record{},
		touched:   map[topology.InstanceKey]*catalog.Instance{},
	}
}

// find returns the place of an instance in the list of its app, where it is or would be.
func (l *ledger) find(key topology.InstanceKey) (at int, found bool) {
	return slices.BinarySearchFunc(l.apps[key.App], key.ID, func(r *record, id string) int { return strings.Compare(r.instance.ID, id) })
}

// get returns an instance's record, or nil.
func (l *ledger) get(key topology.InstanceKey) *record {
	if at, found := l.find(key); found {
		return l.apps[key.App][at]
	}
	return nil
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
	if old := l.get(key); old != nil {
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
	if r := l.get(held.key()); r != nil && r.held == held {
		next := *r
		next.instance.Draining = true
		l.set(&next)
	}
}

// withdraw removes an instance if the registration still holds it.
func (l *ledger) withdraw(held *registration) {
	if r := l.get(held.key()); r != nil && r.held == held {
		l.remove(held.key())
	}
}

// expire removes the restored instances whose sidecars have not reconnected.
func (l *ledger) expire() (gone []catalog.Instance) {
	for _, list := range l.apps {
		for _, r := range list {
			if r.held == nil {
				gone = append(gone, r.instance)
			}
		}
	}
	for i := range gone {
		l.remove(topology.KeyOf(&gone[i]))
	}
	return gone
}

func (l *ledger) set(r *record) {
	key := r.key()
	l.touch(key)
	list := l.apps[key.App]
	if at, found := l.find(key); found {
		delete(l.addresses, placeOf(&list[at].instance))
		list[at] = r
	} else {
		l.apps[key.App] = slices.Insert(list, at, r)
		l.count++
	}
	l.addresses[placeOf(&r.instance)] = r
}

func (l *ledger) remove(key topology.InstanceKey) {
	l.touch(key)
	list := l.apps[key.App]
	at, _ := l.find(key)
	delete(l.addresses, placeOf(&list[at].instance))
	l.count--
	if list = slices.Delete(list, at, at+1); len(list) > 0 {
		l.apps[key.App] = list
	} else {
		delete(l.apps, key.App)
	}
}

// touch keeps the published state of an instance before its first change.
func (l *ledger) touch(key topology.InstanceKey) {
	if _, noted := l.touched[key]; noted {
		return
	}
	var told *catalog.Instance
	if r := l.get(key); r != nil {
		told = &r.instance
	}
	l.touched[key] = told
}

// flush is what there is to tell the topology.
func (l *ledger) flush() topology.InstanceChange {
	c := topology.InstanceChange{Source: Source, Rank: topology.Live}
	for key, told := range l.touched {
		now := l.get(key)
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

// instanceTable has the records of each app, by ID. It is immutable, so that it can be written to
// disk while the next one is made.
type instanceTable = catalog.Table[[]*record]

// table returns a table with what is in the ledger by now of the apps that a change names.
func (l *ledger) table(before instanceTable, change *topology.InstanceChange) instanceTable {
	var edits []catalog.Edit[[]*record]
	noted := map[catalog.App]bool{}
	note := func(app catalog.App) {
		if !noted[app] {
			noted[app] = true
			edits = append(edits, catalog.Edit[[]*record]{App: app, Value: slices.Clone(l.apps[app]), Remove: len(l.apps[app]) == 0})
		}
	}
	for _, key := range change.Delete {
		note(key.App)
	}
	for i := range change.Put {
		note(change.Put[i].App)
	}
	return before.With(edits...)
}
