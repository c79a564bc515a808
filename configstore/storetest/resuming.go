package storetest

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func resuming() []specification {
	return []specification{
		{"a reader that comes back learns what it missed, deletions too", missed},
		{"a reader that missed nothing is told so at once", missedNothing},
		{"a version that nobody knows gets the full set", unknownVersion},
		{"a reader goes on after the store was closed and opened", reopened},
	}
}

// comeBack ends the reader's Watch and starts another where that one was.
func comeBack(t *testing.T, s configstore.Store, r *Reader, missed func()) (since int) {
	t.Helper()
	version := r.Last().Version
	r.stop()
	missed()
	since = len(r.All())
	r.done = make(chan struct{})
	r.start(s, version)
	return since
}

func missed(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("north", "a"), Cluster("west", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"), Cluster("north", "a"), Cluster("west", "a"))
	since := comeBack(t, s, r, func() {
		put(t, b, s, Cluster("east", "b"))
		put(t, b, s, Cluster("east", "c"))
		remove(t, s, Cluster("north", ""))
		put(t, b, s, Cluster("south", "a"))
		remove(t, s, Cluster("south", ""))
	})
	r.awaitSet(Cluster("east", "c"), Cluster("west", "a"))
	first := r.All()[since]
	if !b.Resumes {
		return
	}
	if first.Full || len(first.Objects) != 1 || first.Objects[0].Object.(*catalog.Cluster).Network != "c" {
		t.Errorf("first change after coming back %+v; want Cluster east as it is now, and what was deleted", first)
	}
}

func missedNothing(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"))
	since := comeBack(t, s, r, func() {})
	r.await("word from the store", func() bool { return len(r.changes) > since })
	if first := r.All()[since]; b.Resumes && (first.Full || len(first.Objects) > 0 || first.Version == "") {
		t.Errorf("first change after coming back %+v; want an empty one with a version", first)
	}
	r.awaitSet(Cluster("east", "a"))
}

func unknownVersion(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	for _, version := range []configstore.Version{"nonsense", "0", "999999999", "-", "1-", "99999999999999999999999-0011223344556677", "1-0011223344556677", configstore.Version(strings.Repeat("9", 5000))} {
		r := Watch(t, s, version)
		r.awaitSet(Cluster("east", "a"))
		if first := r.All()[0]; !first.Full {
			t.Errorf("from version %.30q: first change %+v; want the full set", version, first)
		}
	}
}

func reopened(t *testing.T, b Backend) {
	s := b.Open(t)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	version := r.Last().Version
	r.stop()
	remove(t, s, Cluster("west", ""))
	put(t, b, s, Cluster("north", "a"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, b)
	since := len(r.All())
	r.done = make(chan struct{})
	r.start(s, version)
	r.awaitSet(Cluster("east", "a"), Cluster("north", "a"))
	if first := r.All()[since]; b.Resumes && first.Full {
		t.Errorf("first change after the store was opened again is the full set; want what was missed")
	}
}
