package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// patience is how long a test waits for what must come. It is long, since it is only
// used up when the test fails. The tests of this package, which must fail, have less.
var patience = time.Minute

// Reader is one Watch, and what came of it.
type Reader struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Watch, once done

	mu      sync.Mutex
	news    chan struct{} // closed at the next change
	changes []configstore.Change
	set     configstore.Set
	texts   map[catalog.Key]string // of the objects in set
	hold    chan struct{}          // while it is not nil, deliver waits for it to close
}

// Watch starts a Watch, and ends it with the test.
func Watch(t testing.TB, s configstore.Store, from configstore.Version) *Reader {
	t.Helper()
	r := &Reader{t: t, done: make(chan struct{}), news: make(chan struct{})}
	r.start(s, from)
	t.Cleanup(r.stop)
	return r
}

func (r *Reader) start(s configstore.Store, from configstore.Version) {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		r.err = s.Watch(ctx, from, r.deliver)
	}()
}

// stop ends the Watch and waits for it.
func (r *Reader) stop() {
	r.cancel()
	r.release()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Errorf("Watch goes on %s after its context ended", patience)
	}
}

func (r *Reader) deliver(c configstore.Change) error {
	r.mu.Lock()
	hold := r.hold
	r.mu.Unlock()
	if hold != nil {
		<-hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
	r.note(r.set.Apply(c))
	close(r.news)
	r.news = make(chan struct{})
	return nil
}

func (r *Reader) note(net configstore.Change) {
	if r.texts == nil {
		r.texts = map[catalog.Key]string{}
	}
	for _, key := range net.Deleted {
		delete(r.texts, key)
	}
	for _, s := range net.Objects {
		r.texts[s.Object.Key()] = string(api.EncodeJSON(s.Object))
	}
}

// block makes deliver wait until release.
func (r *Reader) block() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = make(chan struct{})
}

func (r *Reader) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hold != nil {
		close(r.hold)
		r.hold = nil
	}
}

// await waits until what the reader has is as it should be.
func (r *Reader) await(what string, is func() bool) {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		ok, news, seen := is(), r.news, r.describe()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-r.done:
			r.t.Fatalf("Watch ended with %v before %s; it had %s", r.err, what, seen)
		case <-deadline:
			r.t.Fatalf("%s after %s: not %s", seen, patience, what)
		}
	}
}

func (r *Reader) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d changes, %d objects", len(r.changes), r.set.Len())
	for i, s := range r.set.All() {
		if i == 20 {
			b.WriteString(" …")
			break
		}
		fmt.Fprintf(&b, " %s", s.Object.Key())
	}
	if n := len(r.changes); n > 0 {
		fmt.Fprintf(&b, ", refused %v", r.changes[n-1].Refused)
	}
	return b.String()
}

// Clusters is the Clusters that the reader has: "east=a west=b", each with its network.
func (r *Reader) Clusters() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusters()
}

func (r *Reader) clusters() string {
	var all []string
	for _, s := range r.set.All() {
		if c, ok := s.Object.(*catalog.Cluster); ok {
			all = append(all, c.Name+"="+c.Network)
		}
	}
	return strings.Join(all, " ")
}

// AwaitClusters waits until the reader has been told of just these Clusters: "east=a west=b", in
// one text or several.
func (r *Reader) AwaitClusters(want ...string) {
	r.t.Helper()
	words := strings.Fields(strings.Join(want, " "))
	slices.Sort(words)
	text := strings.Join(words, " ")
	r.await("the clusters "+text, func() bool { return len(r.changes) > 0 && r.clusters() == text })
}

// awaitSet waits until the reader has these objects and no other.
func (r *Reader) awaitSet(objects ...catalog.Object) {
	r.t.Helper()
	want := texts(objects)
	r.await(fmt.Sprintf("the set of %d objects", len(want)), func() bool {
		return len(r.changes) > 0 && maps.Equal(r.texts, want)
	})
}

// awaitRefused waits until just these are refused.
func (r *Reader) awaitRefused(keys ...catalog.Key) configstore.Change {
	r.t.Helper()
	var last configstore.Change
	r.await(fmt.Sprintf("refused: %v", keys), func() bool {
		if len(r.changes) == 0 {
			return false
		}
		last = r.changes[len(r.changes)-1]
		var got []catalog.Key
		for _, refusal := range last.Refused {
			got = append(got, refusal.Key)
		}
		slices.SortFunc(got, catalog.Key.Compare)
		return slices.Equal(got, keys)
	})
	return last
}

// Last is the last change.
func (r *Reader) Last() configstore.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes[len(r.changes)-1]
}

// All is every change so far.
func (r *Reader) All() []configstore.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}

// AwaitEnd waits for Watch to return, and returns its error.
func (r *Reader) AwaitEnd() error {
	r.t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(patience):
		r.t.Fatalf("Watch goes on; it should have ended")
		return nil
	}
}

// open opens the store and closes it with the test.
func open(t testing.TB, b Backend) configstore.ReadWriter {
	t.Helper()
	return Closing(t, b.Open(t))
}

// Closing closes a store with the test.
func Closing[S configstore.Store](t testing.TB, s S) S {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, configstore.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// Put writes objects in one batch, which must succeed.
func Put(t testing.TB, s configstore.Writer, objects ...catalog.Object) {
	t.Helper()
	writes := make([]configstore.Write, len(objects))
	for i, o := range objects {
		writes[i].Object = o
	}
	write(t, s, writes...)
}

// write makes writes that must succeed.
func write(t testing.TB, s configstore.Writer, writes ...configstore.Write) []string {
	t.Helper()
	revisions, err := s.Write(t.Context(), writes...)
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	return revisions
}

// put writes objects, in one batch where the backend takes so many.
func put(t testing.TB, b Backend, s configstore.Writer, objects ...catalog.Object) []string {
	t.Helper()
	return Fill(t, s, b.MaxBatch, objects)
}

// Fill writes objects, in batches of at most so many; 0 is any number. Several are written at once.
func Fill(t testing.TB, s configstore.Writer, most int, objects []catalog.Object) []string {
	t.Helper()
	size := len(objects)
	if most > 0 {
		size = min(size, most)
	}
	revisions := make([]string, len(objects))
	var writers errgroup.Group
	writers.SetLimit(parallelWriters)
	for begin := 0; begin < len(objects); begin += size {
		batch := objects[begin:min(begin+size, len(objects))]
		writers.Go(func() error {
			writes := make([]configstore.Write, len(batch))
			for i, o := range batch {
				writes[i].Object = o
			}
			written, err := s.Write(t.Context(), writes...)
			copy(revisions[begin:], written)
			return err
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatalf("write: %v", err)
	}
	return revisions
}

// parallelWriters is how many batches are written at once: enough for a server to make
// use of one flush to its disk for several.
const parallelWriters = 8

func remove(t testing.TB, s configstore.Writer, o catalog.Object) {
	t.Helper()
	write(t, s, configstore.Write{Delete: o.Key()})
}

// writeSoon writes to a store that has only just come back.
func writeSoon(t testing.TB, s configstore.Writer, o catalog.Object) {
	t.Helper()
	soon(t, "write", func(ctx context.Context) error {
		_, err := s.Write(ctx, configstore.Write{Object: o})
		return err
	})
}

// texts are objects by key.
func texts(objects []catalog.Object) map[catalog.Key]string {
	all := make(map[catalog.Key]string, len(objects))
	for _, o := range objects {
		all[o.Key()] = string(api.EncodeJSON(o))
	}
	return all
}

func objectsOf(stored []configstore.Stored) (objects []catalog.Object) {
	for _, s := range stored {
		objects = append(objects, s.Object)
	}
	return objects
}

// listSoon lists a store that has only just come back.
func listSoon(t testing.TB, s configstore.Writer) (objects []configstore.Stored) {
	t.Helper()
	soon(t, "list", func(ctx context.Context) (err error) {
		objects, _, err = s.List(ctx)
		return err
	})
	return objects
}

func soon(t testing.TB, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || errors.Is(err, configstore.ErrClosed) {
			t.Fatalf("%s by a store that is back: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
