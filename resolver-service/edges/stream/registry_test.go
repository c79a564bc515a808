package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

var (
	quiet    = slog.New(slog.NewTextHandler(io.Discard, nil))
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	payments = catalog.App{Namespace: "finance", ID: "ledger"}
)

// diary records each change as one line.
type diary struct {
	mu    sync.Mutex
	lines []string
	fail  error
	takes time.Duration // each change, of the time of a bubble
}

func (d *diary) Apply(_ context.Context, c topology.Change) (uint64, error) {
	time.Sleep(d.takes)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return 0, d.fail
	}
	var words []string
	for _, i := range c.Instances {
		for _, k := range i.Delete {
			words = append(words, "-"+k.App.ID+"/"+k.ID)
		}
		for _, p := range i.Put {
			word := "+" + p.App.ID + "/" + p.ID + "@" + p.Address.String()
			if p.Draining {
				word += " draining"
			}
			words = append(words, word)
		}
	}
	if len(words) > 0 {
		slices.Sort(words)
		d.lines = append(d.lines, strings.Join(words, " "))
	}
	return uint64(len(d.lines)), nil
}

func (d *diary) expect(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("the topology was told\n%s\nwant\n%s", strings.Join(d.lines, "\n"), strings.Join(want, "\n"))
	}
	d.lines = nil
}

func instanceOf(app catalog.App, id, address string) catalog.Instance {
	return catalog.Instance{ID: id, App: app, Address: netip.MustParseAddrPort(address)}
}

func holding(app catalog.App, id, address string) (*registration, *bool) {
	lost := new(bool)
	return &registration{instance: instanceOf(app, id, address), superseded: func() { *lost = true }}, lost
}

// inRegistry runs a registry in a bubble with its own time.
func inRegistry(t *testing.T, former []catalog.Instance, f func(t *testing.T, r *registry, d *diary, do func(verb, *registration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		r := newRegistry(d, nil, &topology.Clock{}, 15*time.Second, quiet)
		if err := r.restore(t.Context(), former); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.run(ctx) }()
		f(t, r, d, func(v verb, held *registration) {
			t.Helper()
			if _, err := r.request(ctx, v, held); err != nil {
				t.Errorf("verb %d of %v: %v", v, held.instance, err)
			}
		})
		end()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		if _, err := r.request(context.Background(), withdraw, &registration{}); !errors.Is(err, errStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestASecondStreamTakesAnInstanceOver(t *testing.T) {
	inRegistry(t, nil, func(t *testing.T, _ *registry, d *diary, do func(verb, *registration)) {
		first, lost := holding(orders, "a", "10.0.0.1:1")
		do(register, first)
		second, _ := holding(orders, "a", "10.0.0.1:1")
		do(register, second)
		if !*lost {
			t.Error("the first stream was not told")
		}
		do(drain, first)
		do(withdraw, first)                                         // the half-dead stream breaks at last
		d.expect(t, "+orders/a@10.0.0.1:1", "+orders/a@10.0.0.1:1") // it has come up again
		do(drain, second)
		do(withdraw, second)
		do(withdraw, second)
		d.expect(t, "+orders/a@10.0.0.1:1 draining", "-orders/a")
	})
}

func TestAnAddressHasOneHolder(t *testing.T) {
	inRegistry(t, nil, func(t *testing.T, _ *registry, d *diary, do func(verb, *registration)) {
		one, lost := holding(orders, "a", "10.0.0.1:1")
		do(register, one)
		other, _ := holding(payments, "x", "10.0.0.1:1")
		do(register, other)
		if !*lost {
			t.Error("the first holder was not told")
		}
		d.expect(t, "+orders/a@10.0.0.1:1", "+ledger/x@10.0.0.1:1 -orders/a")
		same, _ := holding(payments, "y", "10.0.0.1:1")
		do(register, same)
		d.expect(t, "+ledger/y@10.0.0.1:1 -ledger/x")
		moved, _ := holding(payments, "y", "10.0.0.2:1")
		do(register, moved)
		do(withdraw, same)
		d.expect(t, "+ledger/y@10.0.0.2:1")
	})
}

func TestTwoAppsThatSwapAddressesAreNeverMixedUp(t *testing.T) {
	l := newLedger()
	a, _ := holding(orders, "a", "10.0.0.1:1")
	x, _ := holding(payments, "x", "10.0.0.2:1")
	l.register(a)
	l.register(x)
	l.flush()
	a2, _ := holding(orders, "a2", "10.0.0.2:1")
	x2, _ := holding(payments, "x2", "10.0.0.1:1")
	l.register(a2)
	l.register(x2)
	told := l.flush()
	if len(told.Delete) != 2 || len(told.Put) != 2 || told.Rank != topology.Live {
		t.Errorf("told as %+v", told)
	}
	if l.count != 2 || len(l.addresses) != 2 {
		t.Errorf("left: %v, %v", l.apps, l.addresses)
	}
	again := l.flush()
	if len(again.Put)+len(again.Delete) > 0 {
		t.Errorf("told twice: %+v", again)
	}
}

func TestFormerInstancesStandUntilTheyHadTimeToComeBack(t *testing.T) {
	former := []catalog.Instance{instanceOf(orders, "a", "10.0.0.1:1"), instanceOf(orders, "b", "10.0.0.2:1"), instanceOf(payments, "x", "10.0.0.3:1")}
	inRegistry(t, former, func(t *testing.T, r *registry, d *diary, do func(verb, *registration)) {
		d.expect(t, "+ledger/x@10.0.0.3:1 +orders/a@10.0.0.1:1 +orders/b@10.0.0.2:1")
		back, _ := holding(orders, "a", "10.0.0.1:1")
		do(register, back)
		taken, _ := holding(orders, "new", "10.0.0.3:1") // an IP given to another app meanwhile
		do(register, taken)
		d.expect(t, "+orders/a@10.0.0.1:1", "+orders/new@10.0.0.3:1 -ledger/x")
		time.Sleep(15*time.Second - time.Millisecond)
		synctest.Wait()
		d.expect(t)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		d.expect(t, "-orders/b")
		if standing, _ := r.published.Load(); standing.Len() != 1 || r.count.Load() != 2 {
			t.Errorf("%d apps and %d instances stand, want 1 and 2", standing.Len(), r.count.Load())
		}
	})
}

func TestWhileNobodyCanComeBackFormerInstancesStandLonger(t *testing.T) {
	former := []catalog.Instance{instanceOf(orders, "a", "10.0.0.1:1")}
	inRegistry(t, former, func(t *testing.T, _ *registry, d *diary, _ func(verb, *registration)) {
		d.expect(t, "+orders/a@10.0.0.1:1")
		time.Sleep(150*time.Second - time.Millisecond)
		synctest.Wait()
		d.expect(t)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		d.expect(t, "-orders/a")
	})
}

// TestEachRegistrationIsLater holds the times that registrations get, also over a restart by which
// the clock was set back.
func TestEachRegistrationIsLater(t *testing.T) {
	former := instanceOf(payments, "x", "10.0.0.3:1")
	former.Since = time.Now().Add(time.Hour).UnixMilli()
	inRegistry(t, []catalog.Instance{former}, func(t *testing.T, r *registry, _ *diary, do func(verb, *registration)) {
		last := former.Since
		for range 3 {
			held, _ := holding(orders, "a", "10.0.0.1:1")
			do(register, held)
			do(drain, held)
			now := r.ledger.get(held.key()).instance
			if now.Since <= last || !now.Draining {
				t.Errorf("%+v registered after %d", now, last)
			}
			last = now.Since
		}
	})
}

func TestManyAtOnceAreFewChanges(t *testing.T) {
	inRegistry(t, nil, func(t *testing.T, r *registry, d *diary, _ func(verb, *registration)) {
		d.takes = time.Millisecond // in which all others have come
		var all sync.WaitGroup
		for i := range 200 {
			held, _ := holding(orders, fmt.Sprint(i), fmt.Sprintf("10.0.0.%d:1", i+1))
			all.Go(func() {
				if _, err := r.request(t.Context(), register, held); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(d.lines); n > 2 {
			t.Errorf("%d changes for 200 registrations, want one for the first and one for the rest", n)
		}
		d.lines = nil
		standing, _ := r.published.Load()
		if list, _ := standing.Get(orders); len(list) != 200 || !slices.IsSortedFunc(list, func(a, b *record) int { return strings.Compare(a.instance.ID, b.instance.ID) }) {
			t.Errorf("%d stand", len(list))
		}
	})
}

func TestATopologyThatFailsEndsTheRegistry(t *testing.T) {
	d := &diary{fail: errors.New("broken")}
	r := newRegistry(d, nil, &topology.Clock{}, time.Minute, quiet)
	done := make(chan error)
	go func() { done <- r.run(context.Background()) }()
	held, _ := holding(orders, "a", "10.0.0.1:1")
	if _, err := r.request(t.Context(), register, held); !errors.Is(err, d.fail) {
		t.Errorf("register: %v", err)
	}
	if err := <-done; !errors.Is(err, d.fail) {
		t.Errorf("run: %v", err)
	}
}

// tableOf is what a registry publishes.
func tableOf(all ...catalog.Instance) instanceTable {
	l := newLedger()
	for _, i := range all {
		l.restore(i)
	}
	changed := l.flush()
	return l.table(instanceTable{}, &changed)
}

func TestASnapshotComesBackAsItWas(t *testing.T) {
	f := &snapshotFile{path: filepath.Join(t.TempDir(), "data", "instances.json"), log: quiet}
	draining := instanceOf(orders, "b", "[fd00::1]:2")
	draining.Draining = true
	was := []catalog.Instance{instanceOf(payments, "x", "10.0.0.3:1"), instanceOf(orders, "a", "10.0.0.1:1"), draining}
	r := tableOf(was...)
	if err := f.write(r, 41); err != nil {
		t.Fatal(err)
	}
	back, revision := f.load()
	slices.SortFunc(back, func(a, b catalog.Instance) int { return strings.Compare(a.App.String()+a.ID, b.App.String()+b.ID) })
	if revision != 41 || !slices.Equal(back, was) {
		t.Errorf("came back at %d as %v", revision, back)
	}
	if left, _ := filepath.Glob(f.path + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWhatAKilledServiceLeftOfASnapshotGoes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"instances.json.123.tmp", "instances.json.bak", "other.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(`{"version":1,"inst`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &snapshotFile{path: filepath.Join(dir, "instances.json"), log: quiet}
	f.load()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, "instances.json.bak"), filepath.Join(dir, "other.tmp")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

func TestASnapshotThatCantBeUsedIsAWarning(t *testing.T) {
	dir := t.TempDir()
	for what, text := range map[string]string{
		"cut short":         `{"version":1,"revision":3,"instances":[{"namespace":"shop","app":"ord`,
		"another version":   `{"version":2}`,
		"a bad app":         `{"version":1,"instances":[{"namespace":"shop","app":"a.b","id":"a","address":"10.0.0.1:1"}]}`,
		"no address":        `{"version":1,"instances":[{"namespace":"shop","app":"orders","id":"a"}]}`,
		"something else":    `[]`,
		"nothing in a file": ``,
	} {
		path := filepath.Join(dir, "instances.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		f := &snapshotFile{path: path, log: slog.New(slog.NewTextHandler(&log, nil))}
		if former, revision := f.load(); len(former) > 0 || revision != 0 || !strings.Contains(log.String(), "WARN") {
			t.Errorf("%s: %v at %d; the log says %q", what, former, revision, log.String())
		}
	}
	f := &snapshotFile{path: filepath.Join(dir, "absent"), log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if former, revision := f.load(); former != nil || revision != 0 {
		t.Errorf("from nothing: %v at %d", former, revision)
	}
}

func TestABadInstanceInASnapshotIsRefusedByNameAndTheRestStand(t *testing.T) {
	for what, bad := range map[string]string{
		"no address":      `{"namespace":"shop","app":"orders","id":"bad"}`,
		"another address": `{"namespace":"shop","app":"orders","id":"bad","address":7}`,
		"a bad app":       `{"namespace":"shop","app":"or.ders","id":"bad","address":"10.0.0.1:1"}`,
	} {
		path := filepath.Join(t.TempDir(), "instances.json")
		good := `{"namespace":"shop","app":"orders","id":"%s","address":"10.0.0.%d:1"}`
		text := `{"version":1,"revision":7,"instances":[` + fmt.Sprintf(good, "a", 1) + "," + bad + "," + fmt.Sprintf(good, "b", 2) + "]}"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		f := &snapshotFile{path: path, log: slog.New(slog.NewTextHandler(&log, nil))}
		former, revision := f.load()
		if len(former) != 2 || former[0].ID != "a" || former[1].ID != "b" || revision != 7 {
			t.Errorf("%s: %v at %d", what, former, revision)
		}
		if !strings.Contains(log.String(), "number 2") || !strings.Contains(log.String(), "bad") {
			t.Errorf("%s: the log says %q", what, log.String())
		}
	}
}

// others records the calls of a registry to its Sharer.
type others struct {
	said  []string
	taken map[string]func()
}

func (o *others) Register(i catalog.Instance, taken func()) {
	o.said, o.taken[i.ID] = append(o.said, "register "+i.ID), taken
}
func (o *others) Drain(k topology.InstanceKey)    { o.said = append(o.said, "drain "+k.ID) }
func (o *others) Withdraw(k topology.InstanceKey) { o.said = append(o.said, "withdraw "+k.ID) }

func TestOtherReplicasAreToldWhatStandsHere(t *testing.T) {
	told := &others{taken: map[string]func(){}}
	d := &diary{}
	r := newRegistry(d, told, &topology.Clock{}, time.Minute, quiet)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.run(ctx) }()
	do := func(v verb, held *registration) {
		t.Helper()
		if _, err := r.request(ctx, v, held); err != nil {
			t.Error(err)
		}
	}
	a, lostA := holding(orders, "a", "10.0.0.1:1")
	do(register, a)
	do(drain, a)
	second, _ := holding(orders, "a", "10.0.0.1:1")
	do(register, second) // reconnects by another stream
	do(drain, a)
	do(withdraw, a)
	b, lostB := holding(orders, "b", "10.0.0.1:1")
	do(register, b)
	do(withdraw, second) // had to give way to b, and goes now
	told.taken["b"]()
	do(withdraw, b)
	c, _ := holding(orders, "c", "10.0.0.3:1")
	do(register, c)
	end()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := r.request(context.Background(), withdraw, c); !errors.Is(err, errStopped) {
		t.Error(err)
	}
	want := []string{"register a", "drain a", "register a", "register b", "withdraw a", "withdraw b", "register c"}
	if !slices.Equal(told.said, want) {
		t.Errorf("others were told\n%v\nwant\n%v", told.said, want)
	}
	if !*lostA || !*lostB {
		t.Error("a stream whose instance was taken over was not told")
	}
}

func TestADiskThatFailsStopsNothing(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	f := &snapshotFile{path: filepath.Join(blocked, "instances.json"), log: slog.New(slog.NewTextHandler(&log, nil))}
	r := newRegistry(&diary{}, nil, &topology.Clock{}, time.Minute, quiet)
	r.published.Store(tableOf(instanceOf(orders, "a", "10.0.0.1:1")))
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := f.follow(ctx, &r.published, func() uint64 { return 1 }); err != nil {
		t.Errorf("follow: %v", err)
	}
	if !strings.Contains(log.String(), "can't be saved") {
		t.Errorf("the log says %q", log.String())
	}
}

// An instance registers just before the end, while an earlier state is being written.
func TestAnInstanceOfTheLastMomentIsSaved(t *testing.T) {
	f := &snapshotFile{path: filepath.Join(t.TempDir(), "instances.json"), log: quiet}
	r := newRegistry(&diary{}, nil, &topology.Clock{}, time.Minute, quiet)
	one, two := instanceOf(orders, "a", "10.0.0.1:1"), instanceOf(orders, "b", "10.0.0.2:1")
	r.published.Store(tableOf(one))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	once := sync.OnceFunc(func() {
		r.published.Store(tableOf(one, two))
		end()
	})
	if err := f.follow(ctx, &r.published, func() uint64 { once(); return 1 }); err != nil {
		t.Errorf("follow: %v", err)
	}
	if former, _ := f.load(); len(former) != 2 {
		t.Errorf("%v is saved at the end, want both instances", former)
	}
}

func TestASnapshotIsWrittenOnceTheDiskIsWellAgain(t *testing.T) {
	for what, heal := range map[string]func(end func()){
		"and nothing changes":  func(func()) { time.Sleep(2 * retryPause) },
		"as the service stops": func(end func()) { end() },
	} {
		synctest.Test(t, func(t *testing.T) {
			blocked := filepath.Join(t.TempDir(), "data")
			if err := os.WriteFile(blocked, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			f := &snapshotFile{path: filepath.Join(blocked, "instances.json"), log: quiet}
			r := newRegistry(&diary{}, nil, &topology.Clock{}, time.Minute, quiet)
			r.published.Store(tableOf(instanceOf(orders, "a", "10.0.0.1:1")))
			ctx, end := context.WithCancel(t.Context())
			var following sync.WaitGroup
			following.Go(func() { _ = f.follow(ctx, &r.published, func() uint64 { return 1 }) })
			time.Sleep(time.Second)
			if err := os.Remove(blocked); err != nil {
				t.Fatal(err)
			}
			heal(end)
			if what == "and nothing changes" {
				if former, _ := f.load(); len(former) != 1 {
					t.Errorf("%s: %v is saved", what, former)
				}
			}
			end()
			following.Wait()
			if former, _ := f.load(); len(former) != 1 {
				t.Errorf("%s: %v is saved at the end", what, former)
			}
		})
	}
}
