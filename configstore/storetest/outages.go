package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func outages() []specification {
	return []specification{
		{"failing is not empty", failingIsNotEmpty},
		{"by a connection lost again and again, changes come in order, none lost and none twice", flapping},
		{"a server's restart loses nothing, doubles nothing and empties nothing", func(t *testing.T, b Backend) { restart(t, b, false) }},
		{"a server's kill -9 loses nothing, doubles nothing and empties nothing", func(t *testing.T, b Backend) { restart(t, b, true) }},
		{"a Watch finds out by itself that its link is cut, and what was missed comes once", cutLink},
		{"a store is opened while its server can't be reached, and is there when it can", cutFromTheStart},
		{"by a cut link, get, list and write end in time", cutCalls},
		{"by a cut link, a Watch ends with its context, and Close ends the others", cutEnds},
		{"by a slow link, the full set and changes come all the same", slowLink},
		{"by a slow link, a write ends in time", slowWrite},
	}
}

func failingIsNotEmpty(t *testing.T, b Backend) {
	orSkip(t, b.Fail != nil, "this store's source can't be made to fail")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	f := Follow(t, s)
	f.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	before := time.Now()
	mend := b.Fail(t, s)
	f.AwaitStatus("a failing store", func(s configstore.Status) bool { return s.Err != nil })
	status, _ := f.Status().Load()
	if !status.Synced || status.Objects != 2 || status.Since.Before(before) {
		t.Errorf("status of the failing store %+v; want two objects that stand, and since when", status)
	}
	b.names(t, "watch", status.Err)
	_, getErr := s.Get(t.Context(), eastKey)
	_, _, listErr := s.List(t.Context())
	for what, err := range map[string]error{"get": getErr, "list": listErr} {
		if err == nil || errors.Is(err, configstore.ErrNotFound) {
			t.Errorf("%s from a failing store: %v; want why it fails", what, err)
		}
		b.names(t, what, err)
	}
	mend()
	f.AwaitStatus("the store back", func(s configstore.Status) bool { return s.Err == nil })
	writeSoon(t, s, Cluster("east", "b"))
	f.awaitSet(Cluster("east", "b"), Cluster("west", "a"))
	f.neverLost(eastKey, Cluster("west", "").Key())
}

func flapping(t *testing.T, b Backend) {
	orSkip(t, b.Cut != nil && b.Fail != nil, "this store has no link")
	s := open(t, b)
	network := func(n int) *catalog.Cluster { return Cluster("east", fmt.Sprintf("n%02d", n)) }
	put(t, b, s, network(0), Cluster("west", "a"))
	f := Follow(t, s)
	f.awaitSet(network(0), Cluster("west", "a"))
	const last = 12
	for n := 1; n < last; n += 2 {
		mend := b.Fail(t, s)
		b.PutRaw(t, s, api.KeyPath(eastKey), api.EncodeJSON(network(n)))
		mend()
		b.PutRaw(t, s, api.KeyPath(eastKey), api.EncodeJSON(network(n+1)))
		f.awaitSet(network(n+1), Cluster("west", "a"))
	}
	before := ""
	for _, c := range f.All() {
		for _, o := range c.Objects {
			if now := o.Object.(*catalog.Cluster); now.Name == "east" {
				if now.Network <= before {
					t.Errorf("network %s came after %s", now.Network, before)
				}
				before = now.Network
			}
		}
	}
	f.neverLost(eastKey, Cluster("west", "").Key())
	f.neverTwice()
}

// restart ends the server just after it has acknowledged a row of writes.
func restart(t *testing.T, b Backend, kill bool) {
	orSkip(t, b.Restart != nil, "this store has no server")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	f := Follow(t, s)
	f.awaitSet(Cluster("east", "a"))
	want := []catalog.Object{Cluster("east", "b")}
	for i := range 10 {
		want = append(want, Cluster(fmt.Sprintf("c%d", i), "a"))
	}
	for _, o := range want {
		put(t, b, s, o)
	}
	b.Restart(t, kill)
	if kill && b.Forgets {
		want = objectsOf(listSoon(t, s))
	}
	f.awaitSet(want...)
	writeSoon(t, s, Cluster("north", "a"))
	want = append(want, Cluster("north", "a"))
	f.awaitSet(want...)
	// A reader may have what the server had, for a while; not who asks now.
	if listed := texts(objectsOf(listSoon(t, s))); !maps.Equal(listed, texts(want)) {
		t.Errorf("after the restart the store lists %v; want %v", listed, texts(want))
	}
	if !kill || !b.Forgets {
		f.neverLost(eastKey)
	}
	f.neverTwice()
}

func cutLink(t *testing.T, b Backend) {
	orSkip(t, b.Cut != nil, "this store has no link")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("north", "a"), Cluster("west", "a"))
	f := Follow(t, s)
	f.awaitSet(Cluster("east", "a"), Cluster("north", "a"), Cluster("west", "a"))
	begin := time.Now()
	mend := b.Cut(t)
	b.PutRaw(t, s, api.KeyPath(eastKey), api.EncodeJSON(Cluster("east", "b")))
	b.PutRaw(t, s, api.KeyPath(Cluster("north", "").Key()), nil)
	f.AwaitStatus("a store that can't be watched", func(s configstore.Status) bool { return s.Err != nil })
	if took := time.Since(begin); took > patience {
		t.Errorf("Watch noticed after %s that its link was cut; want less than %s", took, patience)
	}
	status, _ := f.Status().Load()
	if status.Objects != 3 {
		t.Errorf("status by a cut link %+v; want what was there to stand", status)
	}
	b.names(t, "watch", status.Err)
	mend()
	f.awaitSet(Cluster("east", "b"), Cluster("west", "a"))
	f.AwaitStatus("the store back", func(s configstore.Status) bool { return s.Err == nil })
	writeSoon(t, s, Cluster("west", "b"))
	f.awaitSet(Cluster("east", "b"), Cluster("west", "b"))
	f.neverLost(eastKey, Cluster("west", "").Key())
	f.neverTwice()
}

func cutFromTheStart(t *testing.T, b Backend) {
	orSkip(t, b.Cut != nil, "this store has no link")
	put(t, b, open(t, b), Cluster("east", "a"))
	mend := b.Cut(t)
	begin := time.Now()
	s := open(t, b)
	if took := time.Since(begin); took > patience {
		t.Errorf("to open the store took %s; want that it waits for no server", took)
	}
	f := Follow(t, s)
	f.AwaitStatus("a store that can't be watched", func(s configstore.Status) bool { return s.Err != nil })
	if took := time.Since(begin); took > patience {
		t.Errorf("Watch noticed after %s that its link was cut; want less than %s", took, patience)
	}
	if status, _ := f.Status().Load(); status.Synced || len(f.All()) > 0 {
		t.Errorf("status %+v after %d changes; want nothing from a store that could not be reached", status, len(f.All()))
	}
	mend()
	f.awaitSet(Cluster("east", "a"))
	if first := f.All()[0]; !first.Full {
		t.Errorf("first change %+v; want the full set", first)
	}
}

func cutCalls(t *testing.T, b Backend) {
	orSkip(t, b.Cut != nil, "this store has no link")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	mend := b.Cut(t)
	for what, call := range calls(s, Cluster("east", "b")) {
		inTime(t, what, 500*time.Millisecond, call)
	}
	mend()
	writeSoon(t, s, Cluster("east", "b"))
	Watch(t, s, "").awaitSet(Cluster("east", "b"))
}

func cutEnds(t *testing.T, b Backend) {
	orSkip(t, b.Cut != nil, "this store has no link")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	one, other := Watch(t, s, ""), Watch(t, s, "")
	one.awaitSet(Cluster("east", "a"))
	other.awaitSet(Cluster("east", "a"))
	defer b.Cut(t)()
	begin := time.Now()
	one.cancel()
	if err := one.AwaitEnd(); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch ended with %v, want context.Canceled", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := other.AwaitEnd(); !errors.Is(err, configstore.ErrClosed) {
		t.Errorf("Watch ended with %v, want ErrClosed", err)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("to end took %s; want that it waits for no server", took)
	}
}

// calls are the calls of a Writer.
func calls(s configstore.Writer, o catalog.Object) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"get":   func(ctx context.Context) error { _, err := s.Get(ctx, o.Key()); return err },
		"list":  func(ctx context.Context) error { _, _, err := s.List(ctx); return err },
		"write": func(ctx context.Context) error { _, err := s.Write(ctx, configstore.Write{Object: o}); return err },
	}
}

// inTime holds that a call ends with its context, and says that it was that.
func inTime(t *testing.T, what string, given time.Duration, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	begin := time.Now()
	err := call(ctx)
	if took := time.Since(begin); took > given+patience {
		t.Errorf("%s ended after %s; its context had %s", what, took, given)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s ended with %v; want context.DeadlineExceeded", what, err)
	}
}

func slowLink(t *testing.T, b Backend) {
	orSkip(t, b.Slow != nil, "this store has no link")
	put(t, b, open(t, b), Cluster("east", "a"), Cluster("west", "a"))
	defer b.Slow(t, 300*time.Millisecond)()
	s := open(t, b)
	f := Follow(t, s)
	f.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	put(t, b, s, Cluster("east", "b"))
	f.awaitSet(Cluster("east", "b"), Cluster("west", "a"))
	remove(t, s, Cluster("west", ""))
	f.awaitSet(Cluster("east", "b"))
	f.neverTwice()
	f.AwaitStatus("one of a store that is slow, and not failing", func(s configstore.Status) bool { return s.Synced && s.Err == nil })
}

func slowWrite(t *testing.T, b Backend) {
	orSkip(t, b.Slow != nil, "this store has no link")
	s := open(t, b)
	held := put(t, b, s, Cluster("east", "a"))[0]
	mend := b.Slow(t, 2*time.Second)
	inTime(t, "write", 200*time.Millisecond, func(ctx context.Context) error {
		// It is still on its way when its context ends, and must not undo what comes after it.
		_, err := s.Write(ctx, configstore.Write{Object: Cluster("east", "b"), If: held})
		return err
	})
	mend()
	writeSoon(t, s, Cluster("east", "c"))
	Watch(t, s, "").awaitSet(Cluster("east", "c"))
}
