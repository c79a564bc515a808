package instancestest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// follower is an instances.Feed at work on one source, what stands by it, and what was
// taken away in between.
type follower struct {
	t    *testing.T
	feed *instances.Feed
	tap  *tap

	mu     sync.Mutex
	stands map[topology.InstanceKey]catalog.Instance
	gone   map[string]bool // lines that stood and then did not
	news   chan struct{}   // closed when something changes
}

// tap looks at what a source says itself.
type tap struct {
	instances.Source

	mu      sync.Mutex
	watches int // that said something
	faults  []string
}

// Watch is that of instances.Source.
func (p *tap) Watch(ctx context.Context, emit func(instances.Change) error) error {
	first := true
	return p.Source.Watch(ctx, func(c instances.Change) error {
		p.note(c, first)
		first = false
		return emit(c)
	})
}

func (p *tap) note(c instances.Change, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first {
		p.watches++
	}
	if first && !c.Full {
		p.faults = append(p.faults, "a Watch began with a change that is not the full set")
	}
	seen := map[topology.InstanceKey]bool{}
	for _, i := range c.Put {
		key := topology.InstanceKey{App: i.App, ID: i.ID}
		if seen[key] {
			p.faults = append(p.faults, fmt.Sprintf("one change puts %s of %s twice", i.ID, i.App))
		}
		seen[key] = true
	}
	for _, r := range c.Refused {
		if r.Where == "" || r.Err == nil {
			p.faults = append(p.faults, fmt.Sprintf("a refusal says neither where nor why: %+v", r))
		}
	}
}

// Apply is that of instances.Applier.
func (f *follower) Apply(_ context.Context, c topology.Change) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.lines()
	for _, i := range c.Instances {
		if i.Full {
			clear(f.stands)
		}
		for _, key := range i.Delete {
			delete(f.stands, key)
		}
		for _, p := range i.Put {
			f.stands[topology.InstanceKey{App: p.App, ID: p.ID}] = p
		}
	}
	after := f.lines()
	for _, l := range before {
		if _, still := slices.BinarySearch(after, l); !still {
			f.gone[l] = true
		}
	}
	close(f.news)
	f.news = make(chan struct{})
	return 1, nil
}

// lines are what stands, sorted; with mu held.
func (f *follower) lines() []string {
	var all []string
	for _, i := range f.stands {
		all = append(all, line(i))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// follow runs a Feed until the test ends.
func follow(t *testing.T, s instances.Source) *follower {
	t.Helper()
	f := &follower{
		t: t, stands: map[topology.InstanceKey]catalog.Instance{}, gone: map[string]bool{}, news: make(chan struct{}),
		tap: &tap{Source: s},
	}
	var err error
	f.feed, err = instances.NewFeed(instances.FeedConfig{Sources: []instances.Source{f.tap}}, f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = f.feed.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wait.Wait()
		for _, fault := range f.tap.faults {
			t.Error(fault)
		}
	})
	return f
}

// awaitSet waits until these instances stand, and no others.
func (f *follower) awaitSet(want ...catalog.Instance) {
	f.t.Helper()
	var lines []string
	for _, i := range want {
		lines = append(lines, line(i))
	}
	slices.Sort(lines)
	deadline := time.After(patience)
	for {
		changed := f.changed()
		f.mu.Lock()
		now, news := f.lines(), f.news
		f.mu.Unlock()
		if slices.Equal(now, lines) && f.status().Ready {
			return
		}
		select {
		case <-news:
		case <-changed:
		case <-deadline:
			f.t.Fatalf("after %s there stand\n%s\nwant\n%s\nstatus %+v", patience, few(now), few(lines), f.status())
		}
	}
}

// few is a list for people.
func few(lines []string) string {
	const enough = 20
	if len(lines) > enough {
		return strings.Join(lines[:enough], "\n") + fmt.Sprintf("\nand %d more", len(lines)-enough)
	}
	return strings.Join(lines, "\n")
}

func (f *follower) status() instances.Status {
	all, _ := f.feed.Status().Load()
	return all[0]
}

func (f *follower) changed() <-chan struct{} {
	_, _, changed := f.feed.Status().Follow()
	return changed
}

func (f *follower) awaitStatus(what string, is func(instances.Status) bool) instances.Status {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		changed := f.changed()
		if status := f.status(); is(status) {
			return status
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("status %+v after %s: not %s", f.status(), patience, what)
		}
	}
}

func failing(s instances.Status) bool { return s.Err != nil }

func well(s instances.Status) bool { return s.Err == nil && s.Ready }

// neverLost holds that instances which stood were never taken away, nor changed.
func (f *follower) neverLost(all ...catalog.Instance) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range all {
		if f.gone[line(i)] {
			f.t.Errorf("%s was taken away, and nobody had", line(i))
		}
	}
}

// nothingSaid holds that the source has said nothing at all.
func (f *follower) nothingSaid() {
	f.t.Helper()
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	if f.tap.watches > 0 {
		f.t.Error("the source said something that it can't have read")
	}
}
