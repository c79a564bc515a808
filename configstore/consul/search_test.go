package consul

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// handed waits until a Watch has told of so many objects, and as many deletions.
type handed struct {
	t       *testing.T
	changes chan configstore.Change
	set     configstore.Set
}

func watchAll(t *testing.T, s *Store) *handed {
	t.Helper()
	h := &handed{t: t, changes: make(chan configstore.Change, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Watch(t.Context(), "", func(c configstore.Change) error { // the end of the test
			h.changes <- c
			return nil
		})
	}()
	t.Cleanup(func() { <-done })
	return h
}

// await waits until an object is there with this first endpoint, or is not there for "".
func (h *handed) await(key catalog.Key, first string) configstore.Change {
	h.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case c := <-h.changes:
			h.set.Apply(c)
			got, ok := h.set.Get(key)
			if first == "" && !ok || ok && got.Object.(*catalog.AppEndpoints).Endpoints[0].App.ID == first {
				return c
			}
		case <-limit:
			h.t.Fatalf("%s has not come to be %q", key, first)
		}
	}
}

func TestWhatOtherHandsChangeIsSearchedFor(t *testing.T) {
	p := newPlace(t)
	fill(t, p.open(t, p.token), 1000)
	h := watchAll(t, p.open(t, p.token))
	h.await(selection(0, 0).Key(), "to-0")
	before, begin := p.link.Traffic(), time.Now()

	p.byHand(t, selection(500, 7))
	if c := h.await(selection(500, 0).Key(), "to-7"); c.Full || len(c.Objects) != 1 || len(c.Deleted) != 0 {
		t.Errorf("change %+v; want the one object", c)
	}
	received, took := p.link.Traffic().Received-before.Received, time.Since(begin)
	if took > recheckAfter {
		t.Logf("the machine is busy: it took %s, and so everything may have been read by now", took)
	} else if received > 400_000 {
		t.Errorf("one change by hand among 1,000 objects came in %d bytes", received)
	}
	p.put(t, isthmus.KeyPath(selection(501, 0).Key()), nil)
	if c := h.await(selection(501, 0).Key(), ""); len(c.Objects) != 0 || len(c.Deleted) != 1 {
		t.Errorf("change %+v; want the one deletion", c)
	}
	p.byHand(t, selection(5000, 1)) // where there are others
	h.await(selection(5000, 0).Key(), "to-1")
	lonely := &catalog.AppEndpoints{App: catalog.App{Namespace: "zoo", ID: "x"}, Endpoints: selection(0, 3).Endpoints}
	p.byHand(t, lonely) // where there are none
	h.await(lonely.Key(), "to-3")
}

func TestWhatOtherHandsChangeAtOnceArrivesAtOnce(t *testing.T) {
	p := newPlace(t)
	fill(t, p.open(t, p.token), 1000)
	h := watchAll(t, p.open(t, p.token))
	h.await(selection(0, 0).Key(), "to-0")
	for i, step := range []int{300, 9} { // few, which are searched for, and too many for that
		to := fmt.Sprintf("to-%d", 5000+i)
		var ops api.KVTxnOps
		for n := 0; n < 1000; n += step {
			o := selection(n, 5000+i)
			ops = append(ops, &api.KVTxnOp{Verb: api.KVSet, Key: p.prefix + isthmus.KeyPath(o.Key()), Value: isthmus.EncodeJSON(o)})
		}
		for len(ops) > 0 {
			few := ops[:min(len(ops), maxOps)]
			ops = ops[len(few):]
			if ok, answer, _, err := shared.Admin.KV().Txn(few, nil); err != nil || !ok {
				t.Fatal(answer, err)
			}
		}
		last := selection(1000-1-(1000-1)%step, 0)
		h.await(last.Key(), to)
		for n := 0; n < 1000; n += step {
			if o, _ := h.set.Get(selection(n, 0).Key()); o.Object.(*catalog.AppEndpoints).Endpoints[0].App.ID != to {
				t.Errorf("with the last of them known, %s is not yet", o.Object.Key())
			}
		}
	}
}

// What Isthmus writes while a search goes on is one change, too: one of it that the search
// has come upon is not told without the rest.
func TestASearchDoesNotTearWhatIsWrittenMeanwhile(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, p.token)
	fill(t, s, 1000)
	var told []configstore.Change
	w := watch{store: s, known: map[string]string{}, deliver: func(c configstore.Change) error {
		told = append(told, c)
		return nil
	}}
	if err := w.take(t.Context(), s.readAll); err != nil {
		t.Fatal(err)
	}
	p.byHand(t, selection(500, 7))
	found := s.question(t.Context(), place{key: s.base(), tree: true})
	if found.err != nil {
		t.Fatal(found.err)
	}
	moved := catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "zoo", Name: "x"}
	_, err := s.Write(t.Context(), configstore.Write{Delete: selection(501, 0).Key()},
		configstore.Write{Object: &catalog.AppEndpoints{App: catalog.App{Namespace: moved.Namespace, ID: moved.Name}, Endpoints: selection(0, 3).Endpoints}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		done, err := w.searched(t.Context(), found.index)
		if err != nil {
			t.Fatal(err)
		}
		if !done {
			if err := w.take(t.Context(), s.readAll); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range told[1:] {
		put := slices.ContainsFunc(c.Objects, func(o configstore.Stored) bool { return o.Object.Key() == moved })
		if deleted := slices.Contains(c.Deleted, selection(501, 0).Key()); put != deleted {
			t.Errorf("a change has one half of a write: %d objects, deleted %v", len(c.Objects), c.Deleted)
		}
	}
}
