package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func resuming() []specification {
	return []specification{
		{"a reader that comes back learns what it missed, deletions too", missed},
		{"a reader that missed nothing is told so at once", missedNothing},
		{"a version that nobody knows gets the full set", unknownVersion},
		{"a reader goes on after the store was closed and opened", reopened},
		{"a server's restart loses nothing and empties nothing", serverRestart},
		{"a cut link is an error, and what was missed comes after it", cutLink},
		{"failing is not empty", failingIsNotEmpty},
	}
}

// comeBack ends the reader's Watch and starts another where that one was.
func comeBack(t *testing.T, s configstore.Store, r *reader, missed func()) (since int) {
	t.Helper()
	version := r.version()
	r.stop()
	missed()
	since = len(r.all())
	r.done = make(chan struct{})
	r.start(s, version)
	return since
}

func missed(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, s, cluster("east", "a"), cluster("north", "a"), cluster("west", "a"))
	r := watch(t, s, "")
	r.awaitSet(cluster("east", "a"), cluster("north", "a"), cluster("west", "a"))
	since := comeBack(t, s, r, func() {
		put(t, s, cluster("east", "b"))
		put(t, s, cluster("east", "c"))
		remove(t, s, cluster("north", ""))
		put(t, s, cluster("south", "a"))
		remove(t, s, cluster("south", ""))
	})
	r.awaitSet(cluster("east", "c"), cluster("west", "a"))
	first := r.all()[since]
	if !b.Resumes {
		return
	}
	if first.Full || len(first.Objects) != 1 || first.Objects[0].Object.(*catalog.Cluster).Network != "c" {
		t.Errorf("first change after coming back %+v; want Cluster east as it is now, and what was deleted", first)
	}
}

func missedNothing(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, s, cluster("east", "a"))
	r := watch(t, s, "")
	r.awaitSet(cluster("east", "a"))
	since := comeBack(t, s, r, func() {})
	r.await("word from the store", func() bool { return len(r.changes) > since })
	if first := r.all()[since]; b.Resumes && (first.Full || len(first.Objects) > 0 || first.Version == "") {
		t.Errorf("first change after coming back %+v; want an empty one with a version", first)
	}
	r.awaitSet(cluster("east", "a"))
}

func unknownVersion(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, s, cluster("east", "a"))
	for _, version := range []configstore.Version{"nonsense", "0", "999999999", "-", "1-", "99999999999999999999999-0011223344556677", "1-0011223344556677", configstore.Version(strings.Repeat("9", 5000))} {
		r := watch(t, s, version)
		r.awaitSet(cluster("east", "a"))
		if first := r.all()[0]; !first.Full {
			t.Errorf("from version %.30q: first change %+v; want the full set", version, first)
		}
	}
}

func reopened(t *testing.T, b Backend) {
	s := b.Open(t)
	put(t, s, cluster("east", "a"), cluster("west", "a"))
	r := watch(t, s, "")
	r.awaitSet(cluster("east", "a"), cluster("west", "a"))
	version := r.version()
	r.stop()
	remove(t, s, cluster("west", ""))
	put(t, s, cluster("north", "a"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, b)
	since := len(r.all())
	r.done = make(chan struct{})
	r.start(s, version)
	r.awaitSet(cluster("east", "a"), cluster("north", "a"))
	if first := r.all()[since]; b.Resumes && first.Full {
		t.Errorf("first change after the store was opened again is the full set; want what was missed")
	}
}

func serverRestart(t *testing.T, b Backend) {
	if b.Restart == nil {
		t.Skip("this store has no server")
	}
	s := open(t, b)
	put(t, s, cluster("east", "a"), cluster("west", "a"))
	f := follow(t, s)
	f.awaitSet(cluster("east", "a"), cluster("west", "a"))
	b.Restart(t, true)
	writeSoon(t, s, cluster("east", "b"))
	f.awaitSet(cluster("east", "b"), cluster("west", "a"))
	f.neverLost(cluster("west", "").Key())
}

func cutLink(t *testing.T, b Backend) {
	if b.Cut == nil {
		t.Skip("this store has no link")
	}
	holdsThroughOutage(t, b, open(t, b), func() func() { return b.Cut(t) })
}

func failingIsNotEmpty(t *testing.T, b Backend) {
	if b.Fail == nil {
		t.Skip("this store's source can't be made to fail")
	}
	s := open(t, b)
	holdsThroughOutage(t, b, s, func() func() { return b.Fail(t, s) })
}

func holdsThroughOutage(t *testing.T, b Backend, s configstore.ReadWriter, fail func() (mend func())) {
	put(t, s, cluster("east", "a"), cluster("west", "a"))
	f := follow(t, s)
	f.awaitSet(cluster("east", "a"), cluster("west", "a"))
	before := time.Now()
	mend := fail()
	f.awaitStatus("a failing store", func(s configstore.Status) bool { return s.Err != nil })
	status, _ := f.Status().Load()
	if !status.Synced || status.Objects != 2 || status.Since.Before(before) {
		t.Errorf("status of the failing store %+v; want two objects that stand, and since when", status)
	}
	mend()
	f.awaitStatus("the store back", func(s configstore.Status) bool { return s.Err == nil })
	writeSoon(t, s, cluster("east", "b"))
	f.awaitSet(cluster("east", "b"), cluster("west", "a"))
	f.neverLost(cluster("east", "").Key())
	f.neverLost(cluster("west", "").Key())
}

// writeSoon writes to a store that has only just come back.
func writeSoon(t *testing.T, s configstore.Writer, o catalog.Object) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err = s.Write(t.Context(), configstore.Write{Object: o}); err == nil || errors.Is(err, configstore.ErrClosed) {
			break
		}
	}
	if err != nil {
		t.Fatal(fmt.Errorf("write to the store that is back: %w", err))
	}
}
