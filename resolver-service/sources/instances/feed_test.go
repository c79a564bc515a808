package instances

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func app(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

func at(id, instance, address string) catalog.Instance {
	return catalog.Instance{ID: instance, App: app(id), Address: netip.MustParseAddrPort(address)}
}

func keyed(id, instance string) topology.InstanceKey {
	return topology.InstanceKey{App: app(id), ID: instance}
}

func full(put ...catalog.Instance) Change { return Change{Full: true, Put: put} }

// script is a Source whose Watches do what a test wrote down, one after the other; the
// last one goes on until its context ends.
type script struct {
	name    string
	watches []func(emit func(Change) error) error
	times   []time.Time
}

func (s *script) Name() string { return s.name }

func (s *script) Rank() topology.Rank { return topology.Listed }

func (s *script) Watch(ctx context.Context, emit func(Change) error) error {
	n := len(s.times)
	s.times = append(s.times, time.Now())
	if n < len(s.watches) {
		if err := s.watches[n](emit); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// says is a Watch that says some changes, some time apart, and then fails if err is not nil.
func says(err error, changes ...Change) func(func(Change) error) error {
	return func(emit func(Change) error) error {
		for _, c := range changes {
			if emitErr := emit(c); emitErr != nil {
				return emitErr
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	}
}

// recorder is the topology.
type recorder struct {
	mu      sync.Mutex
	changes []string
	stands  map[string]string
	slow    time.Duration
	err     error
	largest int
}

func (r *recorder) Apply(_ context.Context, c topology.Change) (uint64, error) {
	time.Sleep(r.slow)
	r.mu.Lock()
	defer r.mu.Unlock()
	var words []string
	size := 0
	for _, i := range c.Instances {
		words = append(words, i.Source+":")
		size += len(i.Put) + len(i.Delete)
		if i.Full {
			words = append(words, "full")
			r.clear(i.Source)
		}
		for _, key := range i.Delete {
			words = append(words, "-"+key.App.ID+"/"+key.ID)
			delete(r.stands, i.Source+" "+key.App.ID+"/"+key.ID)
		}
		for _, p := range i.Put {
			words = append(words, "+"+p.App.ID+"/"+p.ID)
			r.stands[i.Source+" "+p.App.ID+"/"+p.ID] = p.Address.String()
		}
	}
	r.largest = max(r.largest, size)
	r.changes = append(r.changes, strings.Join(words, " "))
	return uint64(len(r.changes)), r.err
}

func (r *recorder) clear(source string) {
	for key := range r.stands {
		if strings.HasPrefix(key, source+" ") {
			delete(r.stands, key)
		}
	}
}

// count is how many stand.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.stands)
}

func newRecorder() *recorder { return &recorder{stands: map[string]string{}} }

// follow lets a Feed follow sources for a while.
func follow(t *testing.T, c FeedConfig, r *recorder, d time.Duration) *Feed {
	t.Helper()
	f, err := NewFeed(c, r, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := f.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run ended with %v, want the context's error", err)
	}
	return f
}

func statusOf(t *testing.T, f *Feed, source string) Status {
	t.Helper()
	all, _ := f.Status().Load()
	for _, s := range all {
		if s.Source == source {
			return s
		}
	}
	t.Fatalf("no status of %s among %v", source, all)
	return Status{}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

var errAway = errors.New("connection refused")

func TestASourceThatFailsKeepsWhatItSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		s := &script{name: "a", watches: []func(func(Change) error) error{
			says(errAway, full(at("orders", "1", "10.0.0.1:1"), at("orders", "2", "10.0.0.2:1"))),
			func(func(Change) error) error { time.Sleep(time.Minute); return errAway },
			says(nil, full(at("orders", "2", "10.0.0.2:1"), at("orders", "3", "10.0.0.3:1"))),
		}}
		f, err := NewFeed(FeedConfig{Sources: []Source{s}}, r, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = f.Run(ctx) }()
		time.Sleep(30 * time.Second)
		status := statusOf(t, f, "a")
		if status.Err != errAway || !status.Ready || status.Instances != 2 || time.Since(status.Since) < 29*time.Second || r.count() != 2 {
			t.Errorf("while it fails: %+v, %d stand; want both, and since when it fails", status, r.count())
		}
		if m := status.Message(); m.Error != errAway.Error() || m.FailingUnixMs == 0 || !m.Ready || m.Instances != 2 {
			t.Errorf("message %v", m)
		}
		time.Sleep(time.Minute)
		if status := statusOf(t, f, "a"); status.Err != nil || !status.Since.IsZero() || status.Instances != 2 {
			t.Errorf("when it is back: %+v", status)
		}
		cancel()
		<-done
		if want := []string{"a: full +orders/1 +orders/2", "a: +orders/3 -orders/1"}; !equalWords(r.changes, want) {
			t.Errorf("handed on %q, want %q", r.changes, want)
		}
	})
}

// equalWords compares without an order in a change.
func equalWords(a, b []string) bool {
	sorted := func(s string) []string { w := strings.Fields(s); slices.Sort(w); return w }
	return slices.EqualFunc(a, b, func(x, y string) bool { return slices.Equal(sorted(x), sorted(y)) })
}

func TestASourceIsAskedAgainWithPauses(t *testing.T) {
	denied := fmt.Errorf("token: %w", configstore.ErrDenied)
	for name, c := range map[string]struct {
		err         error
		least, most int
	}{"away": {errAway, 200, 500}, "denied": {denied, 5, 20}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{name: "a"}
				for range 1000 {
					s.watches = append(s.watches, says(c.err))
				}
				f := follow(t, FeedConfig{Sources: []Source{s}}, newRecorder(), time.Minute)
				if n := len(s.times); n < c.least || n > c.most {
					t.Errorf("asked %d times in a minute; want %d to %d", n, c.least, c.most)
				}
				if status := statusOf(t, f, "a"); status.Ready || status.Err != c.err {
					t.Errorf("status %+v", status)
				}
			})
		})
	}
}

func TestOneSourceThatFailsDisturbsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		bad := &script{name: "bad"}
		for range 1000 {
			bad.watches = append(bad.watches, says(errAway))
		}
		good := &script{name: "good", watches: []func(func(Change) error) error{
			says(nil, full(), Change{Put: []catalog.Instance{at("orders", "1", "10.0.0.1:1")}}),
		}}
		f := follow(t, FeedConfig{Sources: []Source{bad, good}, SettleWithin: time.Second}, r, 5*time.Second)
		if want := []string{"good: full", "good: +orders/1"}; !equalWords(r.changes, want) {
			t.Errorf("handed on %q, want %q", r.changes, want)
		}
		if !isClosed(f.Settled()) {
			t.Error("not settled after the bound")
		}
	})
}

func TestSettledWaitsForEveryFullSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &script{name: "slow", watches: []func(func(Change) error) error{
			func(emit func(Change) error) error { time.Sleep(3 * time.Second); return emit(full()) },
		}}
		quick := &script{name: "quick", watches: []func(func(Change) error) error{says(nil, full())}}
		f, err := NewFeed(FeedConfig{Sources: []Source{slow, quick}}, newRecorder(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = f.Run(ctx) }()
		time.Sleep(2 * time.Second)
		if isClosed(f.Settled()) {
			t.Error("settled without the slow source")
		}
		time.Sleep(2 * time.Second)
		if !isClosed(f.Settled()) {
			t.Error("not settled with all full sets")
		}
		cancel()
		<-done
	})
}

func TestABurstBecomesFewChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 10_000
		r := newRecorder()
		r.slow = 10 * time.Millisecond
		s := &script{name: "a", watches: []func(func(Change) error) error{func(emit func(Change) error) error {
			if err := emit(full()); err != nil {
				return err
			}
			for n := range burst { // of one instance, whose address changes
				i := at("orders", "1", "10.0.0.1:1")
				i.Address = netip.AddrPortFrom(i.Address.Addr(), uint16(n+1))
				if err := emit(Change{Put: []catalog.Instance{i}}); err != nil {
					return err
				}
				time.Sleep(10 * time.Microsecond)
			}
			return nil
		}}}
		follow(t, FeedConfig{Sources: []Source{s}}, r, 2*time.Second)
		if n := len(r.changes); n > 15 || r.stands["a orders/1"] != "10.0.0.1:10000" {
			t.Errorf("%d changes, %v stand; want few, and the last address", n, r.stands)
		}
	})
}

func TestAHugeSetIsHandedOnInPortions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		var all []catalog.Instance
		for n := range 3 * portion {
			i := at("orders", fmt.Sprint(n), "10.0.0.1:1")
			i.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), 1)
			all = append(all, i)
		}
		s := &script{name: "a", watches: []func(func(Change) error) error{says(nil, full(all...), full(all[0]), full())}}
		f := follow(t, FeedConfig{Sources: []Source{s}}, r, 2*time.Second)
		if len(r.stands) != 0 || r.largest > portion || len(r.changes) < 6 {
			t.Errorf("%d stand after %d changes of up to %d; want none, and portions of %d", len(r.stands), len(r.changes), r.largest, portion)
		}
		if status := statusOf(t, f, "a"); status.Instances != 0 || status.Err != nil {
			t.Errorf("status %+v", status)
		}
	})
}

func TestWhatIsBeyondTheBoundIsRefusedAndComesWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		one, two, three := at("orders", "1", "10.0.0.1:1"), at("orders", "2", "10.0.0.2:1"), at("orders", "3", "10.0.0.3:1")
		var during Status
		var f *Feed
		s := &script{name: "a", watches: []func(func(Change) error) error{
			func(emit func(Change) error) error {
				if err := emit(full(one, two, three)); err != nil {
					return err
				}
				time.Sleep(time.Second)
				during = statusOf(t, f, "a")
				return emit(Change{Delete: []topology.InstanceKey{keyed("orders", "1")}})
			},
			says(nil, full(two, three)),
		}}
		f, _ = NewFeed(FeedConfig{Sources: []Source{s}, MaxInstances: 2}, r, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_ = f.Run(ctx)
		if during.Instances != 2 || during.RefusedCount != 1 || !strings.Contains(during.Refused[0].Err.Error(), "more than 2 instances") || during.Refused[0].Where != "instance 3 of shop/orders" {
			t.Errorf("with three: %+v", during)
		}
		if status := statusOf(t, f, "a"); status.Instances != 2 || status.RefusedCount != 0 || status.Err != nil || r.stands["a orders/3"] == "" {
			t.Errorf("with room: %+v, %v stand", status, r.stands)
		}
	})
}

func TestInstancesThatCantBeUsedAreRefusedByName(t *testing.T) {
	good := at("orders", "1", "10.0.0.1:1")
	with := func(change func(i *catalog.Instance)) catalog.Instance {
		i := at("orders", "1", "10.0.0.9:1")
		change(&i)
		return i
	}
	for want, i := range map[string]catalog.Instance{
		"there is no address":      with(func(i *catalog.Instance) { i.Address = netip.AddrPort{} }),
		"has no port":              with(func(i *catalog.Instance) { i.Address = netip.MustParseAddrPort("10.0.0.1:0") }),
		"names no host":            with(func(i *catalog.Instance) { i.Address = netip.MustParseAddrPort("0.0.0.0:50002") }),
		"[::]:50002 names no host": with(func(i *catalog.Instance) { i.Address = netip.MustParseAddrPort("[::]:50002") }),
		"224.0.0.1:50002 is multi": with(func(i *catalog.Instance) { i.Address = netip.MustParseAddrPort("224.0.0.1:50002") }),
		"has a zone":               with(func(i *catalog.Instance) { i.Address = netip.MustParseAddrPort("[2001:db8::1%eth0]:50002") }),
		"link-local":               with(func(i *catalog.Instance) { i.Address = netip.MustParseAddrPort("169.254.169.254:80") }),
		"itself listens on":        with(func(i *catalog.Instance) { i.Address = netip.MustParseAddrPort("10.0.0.9:15443") }),
		"its ID has 0 bytes":       with(func(i *catalog.Instance) { i.ID = "" }),
		"its ID has 600 bytes":     with(func(i *catalog.Instance) { i.ID = strings.Repeat("x", 600) }),
		"app-id":                   with(func(i *catalog.Instance) { i.App.ID = "or ders" }),
		"namespace":                with(func(i *catalog.Instance) { i.App.Namespace = "" }),
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder()
				before := i // what stood for the same key
				before.Address = netip.MustParseAddrPort("10.0.0.5:1")
				s := &script{name: "a", watches: []func(func(Change) error) error{
					says(nil, full(at("other", "1", "10.0.0.2:1"), before, good), Change{Put: []catalog.Instance{i}}),
				}}
				rules := &destination.Rules{Listeners: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:15443")}}
				f := follow(t, FeedConfig{Sources: []Source{s}, Destinations: rules}, r, time.Second)
				status := statusOf(t, f, "a")
				if status.RefusedCount != 1 || len(status.Refused) != 1 || !strings.Contains(status.Refused[0].Err.Error(), want) {
					t.Fatalf("status %+v; want one refused, with %q", status, want)
				}
				if !strings.HasPrefix(status.Refused[0].Where, "instance ") || len(status.Refused[0].Where) > 2*maxName+100 {
					t.Errorf("it is called %q", status.Refused[0].Where)
				}
				if r.stands["a other/1"] == "" || r.stands["a "+i.App.ID+"/"+i.ID] == before.Address.String() {
					t.Errorf("%v stand; want the other, and not what was refused", r.stands)
				}
			})
		})
	}
}

func TestARefusalEndsWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := at("orders", "1", "0.0.0.0:1")
		s := &script{name: "a", watches: []func(func(Change) error) error{
			says(nil, Change{Full: true, Put: []catalog.Instance{bad, at("orders", "2", "0.0.0.0:1"), at("orders", "3", "0.0.0.0:1")}, Refused: []Refusal{{"service x", errAway}}},
				Change{Put: []catalog.Instance{at("orders", "1", "10.0.0.1:1")}, Refused: []Refusal{{"service x", errAway}}},
				Change{Delete: []topology.InstanceKey{keyed("orders", "2")}}),
		}}
		r := newRecorder()
		f := follow(t, FeedConfig{Sources: []Source{s}}, r, time.Second)
		if status := statusOf(t, f, "a"); status.RefusedCount != 1 || status.Refused[0].Where != "instance 3 of shop/orders" || status.Instances != 1 {
			t.Errorf("status %+v; want the third refused", status)
		}
	})
}

func TestAContractThatIsBrokenIsAFailure(t *testing.T) {
	for want, watch := range map[string]func(emit func(Change) error) error{
		"not the full set": says(nil, Change{Put: []catalog.Instance{at("orders", "1", "10.0.0.1:1")}}),
		"without a reason": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			var s Source = &script{name: "a", watches: []func(func(Change) error) error{watch}}
			if watch == nil {
				s = ending{}
			}
			r := newRecorder()
			f := follow(t, FeedConfig{Sources: []Source{s}}, r, 20*time.Millisecond)
			if status := statusOf(t, f, "a"); status.Err == nil || !strings.Contains(status.Err.Error(), want) || len(r.changes) != 0 {
				t.Errorf("status %+v; want %q, and nothing handed on but %q", status, want, r.changes)
			}
		})
	}
}

// ending is a source that ends without a reason.
type ending struct{}

func (ending) Name() string                                    { return "a" }
func (ending) Rank() topology.Rank                             { return topology.Listed }
func (ending) Watch(context.Context, func(Change) error) error { return nil }

func TestTwoSourcesOfOneNameAreRefused(t *testing.T) {
	_, err := NewFeed(FeedConfig{Sources: []Source{ending{}, ending{}}}, newRecorder(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("got %v", err)
	}
}

func TestWithoutSourcesItIsSettledAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, FeedConfig{}, newRecorder(), time.Second)
		if !isClosed(f.Settled()) {
			t.Error("not settled")
		}
	})
}

func TestATopologyThatIsGoneEndsTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.err = errAway
		s := &script{name: "a", watches: []func(func(Change) error) error{says(nil, full())}}
		f, err := NewFeed(FeedConfig{Sources: []Source{s}}, r, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Run(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("Run ended with %v", err)
		}
	})
}
