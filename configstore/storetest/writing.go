package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func writing() []specification {
	return []specification{
		{"what was written is there: get and list", getAndList},
		{"what is not there is not found", notFound},
		{"a write holds only for the revision that it was made for", preconditions},
		{"a batch is written whole or not at all", wholeBatch},
		{"of writers for one revision exactly one wins", oneWinner},
		{"of writers at once, nobody's change is lost without an error", conflictingWriters},
		{"an object that can't be used is not written", invalidWrite},
		{"writes that contradict each other are refused", contradiction},
	}
}

func getAndList(t *testing.T, b Backend) {
	s := open(t, b)
	objects := []catalog.Object{
		selection(catalog.DefaultName, catalog.DefaultName, 1), selection("shop", catalog.DefaultName, 1), selection("shop", "checkout", 2),
		export("shop", "orders"), instance("shop", "orders-vm1", "a"), full("east"), Cluster("west", "a"),
	}
	revisions := put(t, b, s, objects...)
	list, refused, err := s.List(t.Context())
	if err != nil || len(refused) != 0 || len(list) != len(objects) {
		t.Fatalf("list: %d objects, refused %v, %v; want %d", len(list), refused, err, len(objects))
	}
	for i, want := range objects {
		got, err := s.Get(t.Context(), want.Key())
		if err != nil {
			t.Fatal(err)
		}
		if string(api.EncodeJSON(got.Object)) != string(api.EncodeJSON(want)) || got.Revision != revisions[i] {
			t.Errorf("get %s: %s at revision %s; want %s at %s", want.Key(), api.EncodeJSON(got.Object), got.Revision, api.EncodeJSON(want), revisions[i])
		}
		if list[i].Object.Key() != want.Key() || list[i].Revision != revisions[i] {
			t.Errorf("list has %s at %s in place %d; want %s at %s, ordered by key", list[i].Object.Key(), list[i].Revision, i, want.Key(), revisions[i])
		}
	}
	if again := put(t, b, s, Cluster("west", "b")); again[0] == revisions[6] {
		t.Errorf("revision %s stands for two different objects", again[0])
	}
}

func notFound(t *testing.T, b Backend) {
	s := open(t, b)
	if _, err := s.Get(t.Context(), eastKey); !errors.Is(err, configstore.ErrNotFound) {
		t.Errorf("get: %v; want ErrNotFound", err)
	}
	if _, err := s.Write(t.Context(), configstore.Write{Delete: eastKey}); !errors.Is(err, configstore.ErrNotFound) {
		t.Errorf("delete: %v; want ErrNotFound", err)
	}
}

func preconditions(t *testing.T, b Backend) {
	s := open(t, b)
	first := write(t, s, configstore.Write{Object: Cluster("east", "a"), If: configstore.Absent})[0]
	if _, err := s.Write(t.Context(), configstore.Write{Object: Cluster("east", "b"), If: configstore.Absent}); !errors.Is(err, configstore.ErrConflict) {
		t.Errorf("create what is there: %v; want ErrConflict", err)
	}
	second := write(t, s, configstore.Write{Object: Cluster("east", "c"), If: first})[0]
	for _, w := range []configstore.Write{{Object: Cluster("east", "d"), If: first}, {Delete: eastKey, If: first}, {Delete: catalog.Key{Kind: catalog.KindCluster, Name: "west"}, If: first}, {Object: Cluster("west", "a"), If: first}} {
		if _, err := s.Write(t.Context(), w); !errors.Is(err, configstore.ErrConflict) {
			t.Errorf("write of %s for an old revision: %v; want ErrConflict", w.Key(), err)
		}
	}
	Watch(t, s, "").awaitSet(Cluster("east", "c"))
	write(t, s, configstore.Write{Delete: eastKey, If: second})
	Watch(t, s, "").awaitSet()
}

func wholeBatch(t *testing.T, b Backend) {
	b.atOnce(t, 3)
	s := open(t, b)
	put(t, b, s, Cluster("north", "a"))
	_, err := s.Write(t.Context(),
		configstore.Write{Object: Cluster("east", "a")},
		configstore.Write{Delete: Cluster("north", "").Key()},
		configstore.Write{Object: Cluster("west", "a"), If: "no-such-revision"},
	)
	if !errors.Is(err, configstore.ErrConflict) {
		t.Errorf("write: %v; want ErrConflict", err)
	}
	Watch(t, s, "").awaitSet(Cluster("north", "a"))
	write(t, s, configstore.Write{Object: Cluster("east", "a")}, configstore.Write{Delete: Cluster("north", "").Key()})
	Watch(t, s, "").awaitSet(Cluster("east", "a"))
}

// oneWinner lets several write for the same state of an object: as it is not there yet,
// as it is, and to delete it.
func oneWinner(t *testing.T, b Backend) {
	s := open(t, b)
	var held string
	for _, c := range []struct {
		what  string
		write func(n int) configstore.Write
	}{
		{"create", func(n int) configstore.Write {
			return configstore.Write{Object: Cluster("east", fmt.Sprintf("a%d", n)), If: configstore.Absent}
		}},
		{"replace", func(n int) configstore.Write {
			return configstore.Write{Object: Cluster("east", fmt.Sprintf("b%d", n)), If: held}
		}},
		{"delete", func(int) configstore.Write { return configstore.Write{Delete: eastKey, If: held} }},
	} {
		won := race(t, b, s, c.what, c.write)
		held = won.revision
		if c.what == "delete" {
			Watch(t, s, "").awaitSet()
		} else {
			Watch(t, s, "").awaitSet(c.write(won.writer).Object)
		}
	}
}

type winner struct {
	writer   int
	revision string
}

// race makes writes at once, of which one may be made, and returns which was.
func race(t *testing.T, b Backend, s configstore.ReadWriter, what string, write func(n int) configstore.Write) winner {
	t.Helper()
	const writers = 8
	revisions, errs := make([]string, writers), make([]error, writers)
	var wait sync.WaitGroup
	for n, w := range several(t, b, s, writers) {
		wait.Go(func() {
			written, err := w.Write(t.Context(), write(n))
			if errs[n] = err; err == nil {
				revisions[n] = written[0]
			}
		})
	}
	wait.Wait()
	won := []winner{}
	for n, err := range errs {
		switch {
		case err == nil:
			won = append(won, winner{n, revisions[n]})
		case !errors.Is(err, configstore.ErrConflict):
			t.Errorf("%s: %v; want ErrConflict", what, err)
		}
	}
	if len(won) != 1 {
		t.Fatalf("%s: %d of %d writers won; want one", what, len(won), writers)
	}
	return won[0]
}

// several is the store opened by so many writers, or the one that is open where there
// can be just one.
func several(t *testing.T, b Backend, s configstore.ReadWriter, n int) []configstore.Writer {
	t.Helper()
	writers := make([]configstore.Writer, n)
	for i := range writers {
		if writers[i] = s; b.Shared {
			writers[i] = open(t, b)
		}
	}
	return writers
}

// conflictingWriters lets several count on one object: each success must count.
func conflictingWriters(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "n0"))
	const writers, each = 6, 8
	var counting errgroup.Group
	for _, w := range several(t, b, s, writers) {
		counting.Go(func() error {
			for range each {
				if err := increment(t, w); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := counting.Wait(); err != nil {
		t.Error(err)
	}
	Watch(t, s, "").awaitSet(Cluster("east", fmt.Sprintf("n%d", writers*each)))
}

func increment(t *testing.T, w configstore.Writer) error {
	for range 10_000 {
		stored, err := w.Get(t.Context(), eastKey)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(stored.Object.(*catalog.Cluster).Network[1:])
		if err != nil {
			return err
		}
		_, err = w.Write(t.Context(), configstore.Write{Object: Cluster("east", fmt.Sprintf("n%d", n+1)), If: stored.Revision})
		if err == nil || !errors.Is(err, configstore.ErrConflict) {
			return err
		}
	}
	return errors.New("conflicts without end: no writer comes through")
}

func invalidWrite(t *testing.T, b Backend) {
	s := open(t, b)
	for name, o := range map[string]catalog.Object{
		"a name that can't be carried": Cluster("EAST", "a"),
		"an endpoint for itself":       &catalog.AppEndpoints{App: catalog.App{Namespace: "a", ID: "b"}, Endpoints: []catalog.Endpoint{{App: catalog.App{Namespace: "a", ID: "b"}}}},
	} {
		writes := []configstore.Write{{Object: o}, {Object: Cluster("good", "a")}}
		if b.MaxBatch == 1 {
			writes = writes[:1]
		}
		if _, err := s.Write(t.Context(), writes...); !errors.Is(err, configstore.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", name, err)
		}
	}
	Watch(t, s, "").awaitSet()
}

func contradiction(t *testing.T, b Backend) {
	b.atOnce(t, 2)
	s := open(t, b)
	for name, writes := range map[string][]configstore.Write{
		"one object twice":       {{Object: Cluster("east", "a")}, {Object: Cluster("east", "b")}},
		"put and deleted":        {{Object: Cluster("east", "a")}, {Delete: eastKey}},
		"neither put nor delete": {{}},
	} {
		if _, err := s.Write(t.Context(), writes...); !errors.Is(err, configstore.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", name, err)
		}
	}
	Watch(t, s, "").awaitSet()
}
