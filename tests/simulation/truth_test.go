package simulation

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// history is every state of something shared, oldest first. States are immutable.
type history[K comparable, V any] struct {
	mu      sync.Mutex
	states  []map[K]V
	changed chan struct{}
}

func newHistory[K comparable, V any]() *history[K, V] {
	return &history[K, V]{states: []map[K]V{{}}, changed: make(chan struct{})}
}

// edit adds a state.
func (h *history[K, V]) edit(change func(map[K]V)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := maps.Clone(h.states[len(h.states)-1])
	change(next)
	h.states = append(h.states, next)
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *history[K, V]) newest() (version int, state map[K]V, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	version = len(h.states) - 1
	return version, h.states[version], h.changed
}

func (h *history[K, V]) at(version int) map[K]V {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.states[version]
}

// access is how one replica reads a history: each state comes late, and none while it is cut off.
// It keeps its last state.
type access struct {
	mu      sync.Mutex
	cut     bool
	delay   time.Duration
	old     int // how many states it is behind
	changed chan struct{}
}

func newAccess() *access { return &access{changed: make(chan struct{})} }

func (a *access) set(cut bool, delay time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut, a.delay = cut, delay
	close(a.changed)
	a.changed = make(chan struct{})
}

// lag has it go back some states, and follow so far behind.
func (a *access) lag(by int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.old = by
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *access) lags() bool { return a.behind() > 0 }

func (a *access) behind() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.old
}

func (a *access) now() (cut bool, delay time.Duration, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cut, a.delay, a.changed
}

var errCut = errors.New("the store is out of reach")

// read delivers the newest state and later ones, with gaps, until ctx ends or the replica is cut
// off.
func read[K comparable, V any](ctx context.Context, h *history[K, V], a *access, deliver func(version int, state map[K]V) error) error {
	for seen := -1; ; {
		cut, delay, cutOff := a.now()
		if cut {
			return errCut
		}
		version, state, changed := h.newest()
		if old := a.behind(); old > 0 {
			version = max(0, version-old)
			state = h.at(version)
		}
		if version == seen {
			select {
			case <-changed:
			case <-cutOff:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if !live.Sleep(ctx, delay) {
			return ctx.Err()
		}
		if cut, _, _ := a.now(); cut {
			return errCut
		}
		if err := deliver(version, state); err != nil {
			return err
		}
		seen = version
	}
}

// store is the config store of a cluster as one replica reaches it. A reconnect delivers the full
// set again.
type store struct {
	objects *history[catalog.Key, catalog.Object]
	access  *access
	corrupt func(catalog.Object) catalog.Object // the effect of a mutation on each object; nil: none
}

// Watch delivers the full set, and then the differences, but for each fourth version.
func (s *store) Watch(ctx context.Context, _ configstore.Version, deliver func(configstore.Change) error) error {
	var before map[catalog.Key]catalog.Object // nil before the first
	return read(ctx, s.objects, s.access, func(version int, state map[catalog.Key]catalog.Object) error {
		c := configstore.Change{Full: before == nil || version%4 == 0 || s.corrupt != nil, Version: configstore.Version(strconv.Itoa(version))}
		had := before
		before = state
		for key := range had {
			if !c.Full && state[key] == nil {
				c.Deleted = append(c.Deleted, key)
			}
		}
		for key, object := range state {
			if !c.Full && had[key] == object {
				continue
			}
			if s.corrupt != nil {
				if object = s.corrupt(object); object == nil {
					continue
				}
			}
			c.Objects = append(c.Objects, configstore.Stored{Object: object, Revision: "1"})
		}
		return deliver(c)
	})
}

// Close does nothing: the context of each Watch ends.
func (s *store) Close() error { return nil }
