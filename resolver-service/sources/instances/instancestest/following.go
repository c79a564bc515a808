package instancestest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// follower is a Followed that knows what was taken away in between.
type follower struct {
	*Followed
	t   *testing.T
	tap *tap

	// These are guarded by the mutex of Followed.
	was  []string        // lines that stood before the last change
	gone map[string]bool // lines that stood and then did not
	news chan struct{}   // closed when something changes
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

// noted looks at what a change left; with mu held.
func (f *follower) noted() {
	now := f.lines()
	for _, l := range f.was {
		if _, still := slices.BinarySearch(now, l); !still {
			f.gone[l] = true
		}
	}
	f.was = now
	close(f.news)
	f.news = make(chan struct{})
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

// follow is Follow, and fails the test with what a source may not say.
func follow(t *testing.T, s instances.Source) *follower {
	t.Helper()
	f := &follower{t: t, gone: map[string]bool{}, news: make(chan struct{}), tap: &tap{Source: s}}
	t.Cleanup(func() { // after the end of the Feed
		for _, fault := range f.tap.faults {
			t.Error(fault)
		}
	})
	f.Followed = newFollowed(f.noted)
	f.run(t, f.tap)
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
		if slices.Equal(now, lines) && f.Status().Ready {
			return
		}
		select {
		case <-news:
		case <-changed:
		case <-deadline:
			f.t.Fatalf("after %s there stand\n%s\nwant\n%s\nstatus %+v", patience, few(now), few(lines), f.Status())
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

func (f *follower) changed() <-chan struct{} {
	_, _, changed := f.Feed.Status().Follow()
	return changed
}

func (f *follower) awaitStatus(what string, is func(instances.Status) bool) instances.Status {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		changed := f.changed()
		if status := f.Status(); is(status) {
			return status
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("status %+v after %s: not %s", f.Status(), patience, what)
		}
	}
}

func failing(s instances.Status) bool { return s.Err != nil }

func well(s instances.Status) bool { return s.Err == nil && s.Ready }

// serves holds that callers see an instance's app at its address, and nobody else.
func (f *follower) serves(i catalog.Instance) {
	f.t.Helper()
	var apps []catalog.App
	for app, addresses := range f.served() {
		if slices.Contains(addresses, i.Address.String()) {
			apps = append(apps, app)
		}
	}
	if !slices.Equal(apps, []catalog.App{i.App}) {
		f.t.Errorf("%s is served with %v, want %s alone", i.Address, apps, i.App)
	}
}

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
