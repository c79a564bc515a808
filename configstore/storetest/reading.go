package storetest

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

func reading() []specification {
	return []specification{
		{"an empty store has an empty full set", emptySet},
		{"the full set comes first", fullFirst},
		{"a change follows, and holds what has changed", changeFollows},
		{"changes come in order and end at the newest", inOrder},
		{"a change of one object comes once", comesOnce},
		{"what was written together arrives together", together},
		{"delete is delete, and what is written again is there again", deleteIsDelete},
		{"every reader sees the same", everyReader},
		{"keys with every allowed character", allowedCharacters},
		{"a huge set comes whole, and a change of it by itself", huge},
	}
}

func emptySet(t *testing.T, b Backend) {
	r := Watch(t, open(t, b), "")
	r.awaitSet()
	if first := r.All()[0]; !first.Full || first.Version == "" {
		t.Errorf("first change %+v; want the full set, and a version", first)
	}
}

func fullFirst(t *testing.T, b Backend) {
	s := open(t, b)
	objects := []catalog.Object{full("east"), export("shop", "orders"), selection("shop", "checkout", 3), instance("shop", "orders-vm1", "Köln: 1")}
	put(t, b, s, objects...)
	r := Watch(t, s, "")
	r.awaitSet(objects...)
	first := r.All()[0]
	if !first.Full || len(first.Objects) != len(objects) || len(first.Deleted) != 0 || len(first.Refused) != 0 {
		t.Errorf("first change %+v; want all four objects, Full", first)
	}
	for _, o := range first.Objects {
		if o.Revision == "" {
			t.Errorf("%s has no revision", o.Object.Key())
		}
	}
}

func changeFollows(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	put(t, b, s, Cluster("east", "b"))
	r.awaitSet(Cluster("east", "b"), Cluster("west", "a"))
	last := r.All()[len(r.All())-1]
	if last.Full || len(last.Objects) != 1 || last.Objects[0].Object.Key().Name != "east" || len(last.Deleted) != 0 {
		t.Errorf("last change %+v; want Cluster east alone", last)
	}
}

func inOrder(t *testing.T, b Backend) {
	s := open(t, b)
	r := Watch(t, s, "")
	const last = 30
	for i := range last + 1 {
		put(t, b, s, Cluster("east", fmt.Sprintf("n%02d", i)))
		if i == 0 { // so that there are changes to be told of
			r.awaitSet(Cluster("east", "n00"))
		}
	}
	r.awaitSet(Cluster("east", fmt.Sprintf("n%02d", last)))
	before := ""
	for _, c := range r.All() {
		for _, o := range c.Objects {
			network := o.Object.(*catalog.Cluster).Network
			if network <= before {
				t.Errorf("network %s came after %s", network, before)
			}
			before = network
		}
	}
}

func comesOnce(t *testing.T, b Backend) {
	s := open(t, b)
	r := Watch(t, s, "")
	r.awaitSet()
	put(t, b, s, Cluster("east", "a"))
	r.awaitSet(Cluster("east", "a"))
	put(t, b, s, Cluster("west", "a")) // what comes after it shows that east came no second time
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	times := 0
	for _, c := range r.All() {
		for _, o := range c.Objects {
			if o.Object.Key().Name == "east" {
				times++
			}
		}
	}
	if times != 1 {
		t.Errorf("Cluster east came %d times, want once", times)
	}
}

func together(t *testing.T, b Backend) {
	b.atOnce(t, 3)
	s := open(t, b)
	r := Watch(t, s, "")
	const last = 10
	for i := range last + 1 {
		network := fmt.Sprintf("n%02d", i)
		put(t, b, s, Cluster("east", network), Cluster("north", network), Cluster("west", network))
		if i == 0 { // so that there is a change to be told of, however fast the writes are
			r.awaitSet(Cluster("east", network), Cluster("north", network), Cluster("west", network))
		}
	}
	r.awaitSet(Cluster("east", "n10"), Cluster("north", "n10"), Cluster("west", "n10"))
	var seen configstore.Set
	for _, c := range r.All() {
		seen.Apply(c)
		networks := map[string]bool{}
		for _, o := range seen.All() {
			networks[o.Object.(*catalog.Cluster).Network] = true
		}
		if len(networks) > 1 {
			t.Errorf("a reader saw %v at once, of which each was written to all three", networks)
		}
	}
}

func deleteIsDelete(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	remove(t, s, Cluster("east", ""))
	r.awaitSet(Cluster("west", "a"))
	last := r.All()[len(r.All())-1]
	if last.Full || len(last.Deleted) != 1 || last.Deleted[0].Name != "east" {
		t.Errorf("last change %+v; want Cluster east deleted, and no full set", last)
	}
	put(t, b, s, Cluster("east", "a"))
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
}

func everyReader(t *testing.T, b Backend) {
	s := open(t, b)
	readers := make([]*Reader, 5)
	for i := range readers {
		readers[i] = Watch(t, s, "")
		put(t, b, s, Cluster(fmt.Sprintf("c%d", i), "a"))
	}
	remove(t, s, Cluster("c0", ""))
	for _, r := range readers {
		r.awaitSet(Cluster("c1", "a"), Cluster("c2", "a"), Cluster("c3", "a"), Cluster("c4", "a"))
	}
}

func allowedCharacters(t *testing.T, b Backend) {
	s := open(t, b)
	var objects []catalog.Object
	for _, name := range allowedNames() {
		objects = append(objects, export(name, name), selection(name, name, 1), instance(name, name, name))
		if catalog.CheckCluster(name) == nil {
			objects = append(objects, Cluster(name, name))
		}
	}
	put(t, b, s, objects...)
	Watch(t, s, "").awaitSet(objects...)
	for _, o := range objects {
		if got, err := s.Get(t.Context(), o.Key()); err != nil || got.Object.Key() != o.Key() {
			t.Errorf("get %s: %v, %v", o.Key(), got.Object, err)
		}
	}
}

func huge(t *testing.T, b Backend) {
	s := open(t, b)
	n := raced.Fewer(cmp.Or(b.Many, 10_000))
	objects := make([]catalog.Object, n)
	for i := range objects {
		objects[i] = export("shop", fmt.Sprintf("app-%d", i))
	}
	put(t, b, s, objects...)
	begin := time.Now()
	r := Watch(t, s, "")
	r.awaitSet(objects...)
	t.Logf("the full set of %d objects took %s", n, time.Since(begin))
	changed := export("shop", fmt.Sprintf("app-%d", n/2))
	changed.Allow = nil
	objects[n/2] = changed
	put(t, b, s, objects[n/2])
	r.awaitSet(objects...)
	if last := r.All()[len(r.All())-1]; last.Full || len(last.Objects) != 1 || len(last.Deleted) != 0 {
		t.Errorf("one change among %d objects came with %d objects, %d deleted, Full %t", n, len(last.Objects), len(last.Deleted), last.Full)
	}
}
