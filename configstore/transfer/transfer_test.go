package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func cluster(name, network string) *catalog.Cluster { return storetest.Cluster(name, network) }

func export(namespace, name string) *catalog.AppExport {
	return &catalog.AppExport{App: catalog.App{Namespace: namespace, ID: name}}
}

func selection(namespace, name, calls string) *catalog.AppEndpoints {
	return &catalog.AppEndpoints{App: catalog.App{Namespace: namespace, ID: name}, Endpoints: []catalog.Endpoint{{App: catalog.App{Namespace: namespace, ID: calls}}}}
}

func embed(t testing.TB) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(filepath.Join(t.TempDir(), "isthmus.db"))
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Closing(t, s)
}

func files(t *testing.T) (s *file.Store, dir string) {
	t.Helper()
	dir = t.TempDir()
	s, err := file.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Closing(t, s), dir
}

// holds is what a store has, in few words.
func holds(t *testing.T, s configstore.Writer) string {
	t.Helper()
	stored, _, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, o := range stored {
		word := o.Object.Key().Name
		if c, ok := o.Object.(*catalog.Cluster); ok {
			word += "=" + c.Network
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func brief(r *Report) string {
	var words []string
	for _, i := range r.Items {
		words = append(words, i.Key.Name+" "+string(i.Result))
	}
	return strings.Join(words, ", ")
}

func TestACopyMovesEverythingAndCanBeRepeated(t *testing.T) {
	from, _ := files(t)
	to := embed(t)
	storetest.Put(t, from, selection("shop", "checkout", "orders"), export("shop", "orders"), cluster("east", "a"), cluster("north", "a"))
	storetest.Put(t, to, cluster("north", "b"), cluster("west", "a"))
	for _, c := range []struct {
		what string
		o    Options
		want string
		has  string
	}{
		{"a dry run writes nothing", Options{DryRun: true}, "checkout created, orders created, east created, north changed, west kept", "north=b west=a"},
		{"a copy keeps what only the target has", Options{}, "checkout created, orders created, east created, north changed, west kept", "checkout orders east=a north=a west=a"},
		{"the second does nothing", Options{}, "checkout unchanged, orders unchanged, east unchanged, north unchanged, west kept", "checkout orders east=a north=a west=a"},
		{"a dry run of pruning", Options{DryRun: true, Prune: true}, "checkout unchanged, orders unchanged, east unchanged, north unchanged, west deleted", "checkout orders east=a north=a west=a"},
		{"pruning deletes it", Options{Prune: true}, "checkout unchanged, orders unchanged, east unchanged, north unchanged, west deleted", "checkout orders east=a north=a"},
	} {
		r, err := Copy(t.Context(), from, to, c.o)
		if err != nil || brief(r) != c.want || holds(t, to) != c.has || r.Verified == c.o.DryRun || len(r.Moved)+len(r.Refused)+len(r.Foreign) > 0 {
			t.Errorf("%s: %s, %v; the target has %s\nreport %+v", c.what, brief(r), err, holds(t, to), r)
		}
	}
}

func TestWhatTheSourceCantUseIsNamedAndStaysInTheTarget(t *testing.T) {
	from, dir := files(t)
	to := embed(t)
	storetest.Put(t, from, cluster("east", "a"))
	storetest.Put(t, to, cluster("west", "a"))
	bad := "apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: west}\nspec: {netwrk: b}\n"
	if err := os.WriteFile(filepath.Join(dir, "west.yaml"), []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Copy(t.Context(), from, to, Options{})
	if err != nil || brief(r) != "east created, west kept" || len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Err.Error(), "netwrk") {
		t.Errorf("%s, %v, refused %v", brief(r), err, r.Refused)
	}
	if r, err := Copy(t.Context(), from, to, Options{Prune: true}); !errors.Is(err, ErrPrune) || len(r.Refused) != 1 {
		t.Errorf("pruned: %v; want none of it, and what is refused", err)
	}
	if got := holds(t, to); got != "east=a west=a" {
		t.Errorf("the target has %s", got)
	}
}

func TestAnEmptySourceDeletesNothing(t *testing.T) {
	to := embed(t)
	storetest.Put(t, to, cluster("east", "a"))
	if r, err := Copy(t.Context(), embed(t), to, Options{Prune: true}); !errors.Is(err, ErrEmpty) {
		t.Errorf("%s, %v", brief(r), err)
	}
	if got := holds(t, to); got != "east=a" {
		t.Errorf("the target has %q", got)
	}
}

// between does something between a store's calls.
type between struct {
	configstore.Writer
	list  func(n int) // before the nth List
	write func(n int, writes []configstore.Write) error
	lists int
	n     int
}

func (b *between) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	b.lists++
	if b.list != nil {
		b.list(b.lists)
	}
	return b.Writer.List(ctx)
}

func (b *between) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	b.n++
	if b.write != nil {
		if err := b.write(b.n, writes); err != nil {
			return nil, err
		}
	}
	return b.Writer.Write(ctx, writes...)
}

func TestAChangeOfTheSourceMeanwhileIsNoticed(t *testing.T) {
	source := embed(t)
	storetest.Put(t, source, cluster("changed", "a"), cluster("gone", "a"), cluster("same", "a"))
	from := &between{Writer: source, list: func(n int) {
		if n == 2 {
			storetest.Put(t, source, cluster("changed", "b"), cluster("new", "a"), cluster("same", "a"))
			if _, err := source.Write(t.Context(), configstore.Write{Delete: cluster("gone", "").Key()}); err != nil {
				t.Fatal(err)
			}
		}
	}}
	r, err := Copy(t.Context(), from, embed(t), Options{})
	if want := "[Cluster changed Cluster gone Cluster new]"; err != nil || !r.Verified || fmt.Sprint(r.Moved) != want {
		t.Errorf("moved %v, %v; want %s", r.Moved, err, want)
	}
}

func TestAChangeOfTheTargetMeanwhileIsNotLost(t *testing.T) {
	from, target := embed(t), embed(t)
	storetest.Put(t, from, cluster("east", "a"), cluster("north", "a"), cluster("west", "a"))
	storetest.Put(t, target, cluster("east", "b"))
	to := &between{Writer: target, write: func(n int, _ []configstore.Write) error {
		if n == 1 {
			storetest.Put(t, target, cluster("east", "mine"), cluster("north", "mine"))
		}
		return nil
	}}
	r, err := Copy(t.Context(), from, to, Options{})
	if err != nil || brief(r) != "east failed, north failed, west created" || !errors.Is(r.Items[0].Err, configstore.ErrConflict) {
		t.Errorf("%s, %v", brief(r), err)
	}
	if got := holds(t, target); got != "east=mine north=mine west=a" {
		t.Errorf("the target has %s", got)
	}
}

// spoiled is a store of which one object can't be used, until somebody mends it just
// before the first write.
type spoiled struct {
	*between
	key  catalog.Key
	mend catalog.Object
}

func (s *spoiled) bad() bool { return s.mend != nil && s.n == 0 }

func (s *spoiled) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	stored, refused, err := s.between.List(ctx)
	if s.bad() {
		stored = slices.DeleteFunc(stored, func(o configstore.Stored) bool { return o.Object.Key() == s.key })
		refused = append(refused, configstore.Refusal{Key: s.key, Where: "its key", Err: configstore.ErrInvalid})
	}
	return stored, refused, err
}

func (s *spoiled) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	stored, err := s.between.Get(ctx, key)
	if s.bad() && key == s.key {
		stored.Object, err = nil, configstore.ErrInvalid
	}
	return stored, err
}

func TestWhatSomebodyMendsInTheTargetMeanwhileIsNotLost(t *testing.T) {
	for what, c := range map[string]struct {
		source []catalog.Object
		o      Options
		want   string
	}{
		"written over": {[]catalog.Object{cluster("east", "a"), cluster("west", "a")}, Options{}, "east failed, west created"},
		"pruned":       {[]catalog.Object{cluster("west", "a")}, Options{Prune: true}, "east failed, west created"},
	} {
		from, target := embed(t), embed(t)
		storetest.Put(t, from, c.source...)
		storetest.Put(t, target, cluster("east", "bad"))
		to := &spoiled{between: &between{Writer: target}, key: cluster("east", "").Key(), mend: cluster("east", "mine")}
		to.write = func(n int, _ []configstore.Write) error {
			if n == 1 {
				storetest.Put(t, target, to.mend)
			}
			return nil
		}
		r, err := Copy(t.Context(), from, to, c.o)
		if err != nil || brief(r) != c.want || !errors.Is(r.Items[0].Err, configstore.ErrConflict) {
			t.Errorf("%s: %s, %v", what, brief(r), err)
		}
		if got := holds(t, target); got != "east=mine west=a" {
			t.Errorf("%s: the target has %s", what, got)
		}
	}
}

func TestAnObjectThatIsWrittenOverIsNotVerified(t *testing.T) {
	from, target := embed(t), embed(t)
	storetest.Put(t, from, cluster("east", "a"), cluster("north", "a"))
	storetest.Put(t, target, cluster("gone", "a"))
	to := &between{Writer: target, list: func(n int) {
		if n == 2 {
			storetest.Put(t, target, cluster("east", "mine"), cluster("gone", "mine"))
			if _, err := target.Write(t.Context(), configstore.Write{Delete: cluster("north", "").Key()}); err != nil {
				t.Fatal(err)
			}
		}
	}}
	r, err := Copy(t.Context(), from, to, Options{Prune: true})
	if err != nil || r.Verified || brief(r) != "east failed, gone failed, north failed" {
		t.Errorf("%s, verified %t, %v", brief(r), r.Verified, err)
	}
}

// limited takes so many objects at once, and objects of so many bytes.
func limited(s configstore.Writer, objects, bytes int) *between {
	return &between{Writer: s, write: func(_ int, writes []configstore.Write) error {
		for _, w := range writes {
			if w.Object != nil {
				if _, err := configstore.Encode(w.Object, bytes); err != nil {
					return err
				}
			}
		}
		if len(writes) > objects {
			return fmt.Errorf("%d writes: %w", len(writes), configstore.ErrTooLarge)
		}
		return nil
	}}
}

func TestBatchesAreWhatTheTargetCanTake(t *testing.T) {
	from := embed(t)
	var objects []catalog.Object
	for i := range 500 {
		objects = append(objects, cluster(fmt.Sprintf("c%03d", i), "a"))
	}
	storetest.Put(t, from, objects...)
	for most, wantWrites := range map[int]int{1000: 1, 128: 7, 64: 15} {
		target := embed(t)
		to := limited(target, most, 1<<20)
		r, err := Copy(t.Context(), from, to, Options{})
		if err != nil || r.Count(Created) != 500 || !r.Verified || to.n > wantWrites {
			t.Errorf("at most %d: %d created in %d calls, want %d, %v", most, r.Count(Created), to.n, wantWrites, err)
		}
	}
}

// single takes one object at a time, from many callers at once.
type single struct{ configstore.Writer }

func (s single) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	if len(writes) > 1 {
		return nil, configstore.ErrTooLarge
	}
	return s.Writer.Write(ctx, writes...)
}

func TestOneObjectAtATimeGoesAbreast(t *testing.T) {
	from, target := embed(t), embed(t)
	var objects []catalog.Object
	for i := range 50 {
		objects = append(objects, export("shop", fmt.Sprintf("a%03d", i)))
	}
	storetest.Put(t, from, objects...)
	last := 0
	r, err := Copy(t.Context(), from, single{target}, Options{Progress: func(done, of int) {
		if done < last || of != 50 {
			t.Errorf("progress %d of %d after %d", done, of, last)
		}
		last = done
	}})
	if err != nil || r.Count(Created) != 50 || !r.Verified || last != 50 {
		t.Errorf("%d created, progress ended at %d, %v", r.Count(Created), last, err)
	}
}

func TestAnObjectThatTheTargetCantTakeIsNamedAndTheRestAreCopied(t *testing.T) {
	from := embed(t)
	large := selection("shop", "large", "orders")
	for i := range 200 {
		large.Endpoints = append(large.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", i)}})
	}
	storetest.Put(t, from, cluster("east", "a"), large, selection("shop", "small", "orders"))
	r, err := Copy(t.Context(), from, limited(embed(t), 100, 1000), Options{})
	if err != nil || brief(r) != "large failed, small created, east created" || !errors.Is(r.Items[0].Err, configstore.ErrTooLarge) || !r.Verified {
		t.Errorf("%s, verified %t, %v", brief(r), r.Verified, err)
	}
}

func TestATargetThatTakesNothingEndsTheCopy(t *testing.T) {
	from, target := embed(t), embed(t)
	var objects []catalog.Object
	for i := range 500 {
		objects = append(objects, export("shop", fmt.Sprintf("a%03d", i)))
	}
	storetest.Put(t, from, objects...)
	for _, cause := range []error{configstore.ErrReadOnly, fmt.Errorf("%w (%w)", configstore.ErrReadOnly, configstore.ErrDenied), errors.New("connection refused")} {
		to := &between{Writer: target, write: func(int, []configstore.Write) error { return cause }}
		r, err := Copy(t.Context(), from, to, Options{})
		if errors.Is(cause, configstore.ErrDenied) && to.n != 1 {
			t.Errorf("%v: tried %d times", cause, to.n)
		}
		if !errors.Is(err, cause) || r.Verified || r.Count(Failed) > mostFailures || r.Count(Pending) < 400 {
			t.Errorf("%v: %v, %d failed, %d pending", cause, err, r.Count(Failed), r.Count(Pending))
		}
	}
}

func TestACopyThatIsInterruptedGoesOnTheNextTime(t *testing.T) {
	from, target := embed(t), embed(t)
	var objects []catalog.Object
	for i := range 2*mostObjects + 1 {
		objects = append(objects, export("shop", fmt.Sprintf("a%05d", i)))
	}
	storetest.Put(t, from, objects...)
	ctx, cancel := context.WithCancel(t.Context())
	to := &between{Writer: target, write: func(n int, _ []configstore.Write) error {
		if n == 2 {
			cancel()
		}
		return nil
	}}
	r, err := Copy(ctx, from, to, Options{})
	if !errors.Is(err, context.Canceled) || r.Count(Created) != mostObjects || r.Count(Pending) != mostObjects+1 {
		t.Errorf("%d created, %d pending, %v", r.Count(Created), r.Count(Pending), err)
	}
	r, err = Copy(t.Context(), from, target, Options{})
	if err != nil || r.Count(Unchanged) != mostObjects || r.Count(Created) != mostObjects+1 || !r.Verified {
		t.Errorf("again: %d unchanged, %d created, %v", r.Count(Unchanged), r.Count(Created), err)
	}
}

func TestAStoreThatCantBeReadIsNotEmpty(t *testing.T) {
	closed, open := embed(t), embed(t)
	storetest.Put(t, open, cluster("east", "a"))
	closed.Close()
	if r, err := Copy(t.Context(), closed, open, Options{Prune: true}); !errors.Is(err, configstore.ErrClosed) || !strings.HasPrefix(err.Error(), "read the source: ") || r == nil {
		t.Errorf("the source: %v", err)
	}
	if _, err := Copy(t.Context(), open, closed, Options{}); !errors.Is(err, configstore.ErrClosed) || !strings.HasPrefix(err.Error(), "read the target: ") {
		t.Errorf("the target: %v", err)
	}
	if got := holds(t, open); got != "east=a" {
		t.Errorf("it has %s", got)
	}
}

// Whoever watches the target never follows a selection to a cluster that is not there.
func TestClustersAreWrittenBeforeSelections(t *testing.T) {
	from := embed(t)
	storetest.Put(t, from, selection("shop", "checkout", "orders"), export("shop", "orders"), cluster("east", "a"))
	target := embed(t)
	storetest.Put(t, target, selection("shop", "gone", "orders"))
	var order []string
	to := &between{Writer: single{target}, write: func(_ int, writes []configstore.Write) error {
		for _, w := range writes {
			order = append(order, w.Key().Name)
		}
		return nil
	}}
	if _, err := Copy(t.Context(), from, to, Options{Prune: true}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"east", "orders", "checkout", "gone"}; !slices.Equal(order[:3], want[:3]) {
		t.Errorf("first batch %v, want %v", order, want)
	}
}

func TestACopyHasTheIdentityOfItsSourceUnlessTheTargetHasOne(t *testing.T) {
	from, to, other := embed(t), embed(t), embed(t)
	storetest.Put(t, from, cluster("east", "a"))
	identityOf := func(s *embedded.Store, anew string) string {
		t.Helper()
		id, err := s.Identity(t.Context(), anew)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	identityOf(from, "source")
	identityOf(other, "other")
	for s, want := range map[*embedded.Store]string{to: "source", other: "other"} {
		for _, dryRun := range []bool{true, false} {
			if _, err := Copy(t.Context(), from, s, Options{DryRun: dryRun}); err != nil {
				t.Fatal(err)
			}
			if got := identityOf(s, ""); dryRun && got == "source" || !dryRun && got != want {
				t.Errorf("after a copy (dry run: %t) the target's identity is %q; want %q", dryRun, got, want)
			}
		}
	}
}
