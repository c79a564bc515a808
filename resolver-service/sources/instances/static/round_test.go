package static

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// watched is a source at work and what it has said.
type watched struct {
	objects live.Value[[]*catalog.AppInstance]
	mu      sync.Mutex
	stands  map[string]catalog.Instance // by "app/id"
	refused []instances.Refusal
	changes int
	news    chan struct{}
}

// watch runs a source over objects until the test ends.
func watch(t *testing.T, prepare func(*catalog.AppInstance) asker, objects ...*catalog.AppInstance) *watched {
	t.Helper()
	w := &watched{stands: map[string]catalog.Instance{}, news: make(chan struct{}, 1)}
	w.objects.Store(objects)
	s := New(&w.objects, local())
	if prepare != nil {
		s.prepare = prepare
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.Watch(ctx, w.take) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	return w
}

func (w *watched) take(c instances.Change) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
	if c.Full {
		clear(w.stands)
	}
	for _, key := range c.Delete {
		delete(w.stands, key.App.ID+"/"+key.ID)
	}
	for _, i := range c.Put {
		w.stands[i.App.ID+"/"+i.ID] = i
	}
	w.refused = slices.Concat(c.Refused, c.Remarks)
	select {
	case w.news <- struct{}{}:
	default:
	}
	return nil
}

// now is such as "orders/one ready, orders/two not".
func (w *watched) now() (set string, refused []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for name, i := range w.stands {
		state := " ready"
		if i.Draining {
			state = " not"
		}
		all = append(all, name+state)
	}
	slices.Sort(all)
	for _, r := range w.refused {
		refused = append(refused, r.Where+": "+r.Err.Error())
	}
	return strings.Join(all, ", "), refused
}

// await waits until the set is this one, and what is refused says each of the words.
func (w *watched) await(t *testing.T, want string, words ...string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		set, refused := w.now()
		said := strings.Join(refused, "\n")
		if set == want && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(said, word) }) && (len(words) > 0 || said == "") {
			return
		}
		select {
		case <-w.news:
		case <-deadline:
			t.Fatalf("there is %q, refused %q; want %q, refused for %q", set, refused, want, words)
		}
	}
}

// named is an instance of orders with a check every second, at 10.0.0.5:50002 if it is called
// one, and at an address of its own in any case.
func named(name string) *catalog.AppInstance {
	address := netip.MustParseAddrPort("10.0.0.5:50002")
	if name != "one" {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		address = netip.AddrPortFrom(netip.AddrFrom16([16]byte(h.Sum([]byte{0xfd, 0, 0, 0, 0, 0, 0, 1}))), 50002)
	}
	return &catalog.AppInstance{
		Namespace: "shop", Name: name, App: "orders", Address: address,
		Check: &catalog.HealthCheck{Port: 50002, Interval: time.Second, Timeout: 500 * time.Millisecond, HealthyAfter: 1, UnhealthyAfter: 2},
	}
}

// script answers checks one after the other, and then as the last time.
type script struct {
	mu    sync.Mutex
	says  string // one letter for each check: + or -
	asked int
}

func (s *script) prepare(*catalog.AppInstance) asker {
	return func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.says[min(s.asked, len(s.says)-1)]
		s.asked++
		if c == '-' {
			return errors.New("tcp 10.0.0.5:50002: connection refused")
		}
		return nil
	}
}

func TestReadyAfterSoManyChecks(t *testing.T) {
	for _, c := range []struct {
		name               string
		healthy, unhealthy int
		says               string
		want               string // after each check: + ready, - not
	}{
		{"ready at the first success", 1, 2, "+++", "+++"},
		{"not ready before one", 1, 2, "--+", "--+"},
		{"one failure is forgiven", 1, 2, "+-+-+", "+++++"},
		{"two in a row are not", 1, 2, "+--+", "++-+"},
		{"a late start", 3, 2, "++-+++", "-----+"},
		{"strict both ways", 2, 1, "++-+++", "-+--++"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := named("one")
			o.Check.HealthyAfter, o.Check.UnhealthyAfter = c.healthy, c.unhealthy
			target := newTarget(o, func(context.Context) error { return nil })
			var got strings.Builder
			for _, says := range c.says {
				var err error
				if says == '-' {
					err = errors.New("refused")
				}
				target.result(err)
				got.WriteString(map[bool]string{true: "+", false: "-"}[target.ready])
			}
			if got.String() != c.want {
				t.Errorf("ready is %s, want %s", &got, c.want)
			}
		})
	}
}

// TestChecksComeAsOftenAsTheirObjectSays runs by a clock that costs nothing.
func TestChecksComeAsOftenAsTheirObjectSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var says script
		says.says = "+"
		watch(t, says.prepare, named("one"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if says.asked < 3500 || says.asked > 3700 {
			t.Errorf("%d checks in an hour, want one a second", says.asked)
		}
	})
}

func TestWhatIsToldIsWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := script{says: "--+++--++++"}
		w := watch(t, says.prepare, named("one"))
		time.Sleep(time.Minute)
		synctest.Wait()
		w.await(t, "orders/one ready")
		if w.changes != 4 {
			t.Errorf("%d changes were told, want 4: not ready, ready, not, ready", w.changes)
		}
	})
}

func TestAnInstanceWithoutACheckIsReady(t *testing.T) {
	o := named("one")
	o.Check = nil
	w := watch(t, nil, o)
	w.await(t, "orders/one ready")
	w.objects.Store(nil)
	w.await(t, "")
}

func TestTheReasonIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := script{says: "+--"}
		w := watch(t, says.prepare, named("one"))
		w.await(t, "orders/one ready")
		w.await(t, "orders/one not", "AppInstance shop/one: tcp 10.0.0.5:50002: connection refused; not ready since 2000-01-01T00:00:0", "Z, ready again after a check that succeeds")
	})
}

// TestAReasonReadsTheSameUntilItChanges: each that reads another way is logged.
func TestAReasonReadsTheSameUntilItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := script{says: "-"}
		w := watch(t, says.prepare, named("one"))
		w.await(t, "orders/one not", "connection refused")
		_, before := w.now()
		for n := range 50 {
			time.Sleep(time.Second)
			o := named("two")
			o.Check, o.Zone = nil, fmt.Sprint(n)
			w.objects.Store([]*catalog.AppInstance{named("one"), o})
		}
		synctest.Wait()
		if _, after := w.now(); w.changes < 50 || !slices.Equal(before, after) {
			t.Errorf("after %d changes it says %q, and before %q", w.changes, after, before)
		}
	})
}

func TestTheFirstSetWaitsForTheFirstAnswersAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(*catalog.AppInstance) asker {
			return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		}
		o := named("one")
		o.Check.Interval, o.Check.Timeout = time.Minute, time.Minute
		begin := time.Now()
		w := watch(t, silent, o)
		w.await(t, "orders/one not")
		if took := time.Since(begin); took != firstWithin {
			t.Errorf("the first set came after %s, want %s", took, firstWithin)
		}
		time.Sleep(time.Minute)
		w.await(t, "orders/one not", "no answer within 1m0s; not ready since 2000-01-01T00:01:00Z")
	})
}

func TestAChangedObject(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*catalog.AppInstance)
		keeps  bool // what was found out
		soon   bool // it is checked again at once
	}{
		{"another zone", func(o *catalog.AppInstance) { o.Zone = "b" }, true, false},
		{"another version", func(o *catalog.AppInstance) { o.Version = "2" }, true, false},
		{"another line in its file", func(o *catalog.AppInstance) { o.Source.Line = 7 }, true, false},
		{"another interval", func(o *catalog.AppInstance) { o.Check.Interval = 30 * time.Minute }, true, true},
		{"another address", func(o *catalog.AppInstance) { o.Address = netip.MustParseAddrPort("10.0.0.6:50002") }, false, true},
		{"another port to ask", func(o *catalog.AppInstance) { o.Check.Port = 1 }, false, true},
		{"another app", func(o *catalog.AppInstance) { o.App = "billing" }, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				says := script{says: "+-"}
				o := named("one")
				o.Check.Interval, o.Check.UnhealthyAfter = time.Hour, 2
				w := watch(t, says.prepare, o)
				w.await(t, "orders/one ready")
				check := *o.Check
				next := *o
				next.Check = &check
				c.change(&next)
				w.objects.Store([]*catalog.AppInstance{&next})
				time.Sleep(time.Second)
				synctest.Wait()
				set, _ := w.now()
				if want := next.App + "/one ready"; (set == want) != c.keeps {
					t.Errorf("then it is %q; what was found out is kept: want %t", set, c.keeps)
				}
				if (says.asked == 2) != c.soon {
					t.Errorf("asked %d times; at once: want %t", says.asked, c.soon)
				}
				if w.stands[next.App+"/one"].Zone != next.Zone || len(w.stands) != 1 {
					t.Errorf("there stands %+v", w.stands)
				}
			})
		})
	}
}

func TestWhatIsDeletedIsGoneAtOnceAlsoWhileItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{}, 8)
		prepare := func(o *catalog.AppInstance) asker {
			return func(ctx context.Context) error {
				if o.Name == "one" {
					<-ctx.Done()
					ended <- struct{}{}
				}
				return nil
			}
		}
		o := named("one")
		o.Check.Interval, o.Check.Timeout = time.Hour, time.Hour
		w := watch(t, prepare, o, named("two"))
		w.await(t, "orders/one not, orders/two ready")
		begin := time.Now()
		w.objects.Store([]*catalog.AppInstance{named("two")})
		w.await(t, "orders/two ready")
		<-ended
		if took := time.Since(begin); took > rest {
			t.Errorf("it was gone after %s", took)
		}
	})
}

// An object may change while its instance is asked, and not answer in time.
func TestAnObjectThatChangesWhileItsInstanceIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(*catalog.AppInstance) asker {
			return func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}
		}
		w := watch(t, silent, named("one"))
		synctest.Wait()
		next := named("one")
		next.Zone = "b"
		w.objects.Store([]*catalog.AppInstance{next})
		w.await(t, "orders/one not", "no answer within 500ms")
		if zone := w.stands["orders/one"].Zone; zone != "b" {
			t.Errorf("it is in zone %q", zone)
		}
	})
}

// An object that asks another question and is deleted at once was told of before that, and
// what was told is taken back.
func TestWhatIsChangedAndDeletedAtOnceIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := script{says: "+"}
		w := watch(t, says.prepare, named("one"))
		w.await(t, "orders/one ready")
		next := named("one")
		next.Address = netip.MustParseAddrPort("10.0.0.6:50002")
		w.objects.Store([]*catalog.AppInstance{next})
		synctest.Wait()
		w.objects.Store(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if set, _ := w.now(); set != "" {
			t.Errorf("there stands %q", set)
		}
	})
}

// TestTheSilentHoldUpNobody has more instances that never answer than may be asked at
// once, and some that do.
func TestTheSilentHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answered, most, running atomic.Int64
		prepare := func(o *catalog.AppInstance) asker {
			return func(ctx context.Context) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				if strings.HasPrefix(o.Name, "well") {
					answered.Add(1)
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
		}
		const well = 20
		silent := raced.Fewer(5000)
		var objects []*catalog.AppInstance
		for n := range silent {
			o := named(fmt.Sprintf("silent-%d", n))
			o.App = fmt.Sprintf("app-%d", n%25)
			objects = append(objects, o)
		}
		for n := range well {
			objects = append(objects, named(fmt.Sprintf("well-%d", n)))
		}
		watch(t, prepare, objects...)
		time.Sleep(5 * time.Second) // all have been asked once
		before := answered.Load()
		const seconds = 20
		time.Sleep(seconds * time.Second)
		if got := answered.Load() - before; got < seconds*well*9/10 {
			t.Errorf("those that answer were asked %d times in %d s, want some %d", got, seconds, seconds*well)
		}
		if most.Load() > 4096 {
			t.Errorf("%d were asked at once; want 4,096 at most", most.Load())
		}
	})
}

// Two objects with one address are told of for as long as that is so, and nothing is withheld.
func TestTwoObjectsAtOneAddressAreNamed(t *testing.T) {
	named := func(name, app, address string) *catalog.AppInstance {
		return &catalog.AppInstance{Namespace: "shop", Name: name, App: app, Address: netip.MustParseAddrPort(address)}
	}
	one, other := named("one", "orders", "10.0.0.1:1"), named("other", "billing", "10.0.0.1:1")
	w := watch(t, nil, one)
	w.await(t, "orders/one ready")
	w.objects.Store([]*catalog.AppInstance{one, other})
	w.await(t, "billing/other ready, orders/one ready", "AppInstance shop/one: the address 10.0.0.1:1 for shop/orders is that of AppInstance shop/other too")
	w.objects.Store([]*catalog.AppInstance{one, named("other", "billing", "10.0.0.2:1")})
	w.await(t, "billing/other ready, orders/one ready")
	if _, refused := w.now(); len(refused) > 0 {
		t.Errorf("there are still named %q", refused)
	}
}
