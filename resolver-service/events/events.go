// Package events keeps the latest events of a resolver service, for operators: the log at INFO and
// above, and events that would be too many for a log.
package events

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// The bounds of a Ring.
const (
	most       = 5000             // events
	maxText    = 2 << 10          // bytes of one event
	similar    = 64               // how many of the newest events are looked at for the same
	sameWithin = 10 * time.Second // in which the same again counts as one event
	leastLevel = slog.LevelInfo   // of the log's lines
)

// Event is something that happened, or the same thing several times in a row.
type Event struct {
	Number  uint64 // grows with each event; one that happens again gets a new one
	First   time.Time
	Last    time.Time
	Count   int
	Level   slog.Level
	Message string
	Fields  []Field
}

// Field is an attribute of an event.
type Field struct{ Name, Value string }

// Wire is the message of an event.
func (e *Event) Wire() *v1alpha1.Event {
	m := &v1alpha1.Event{
		Number: e.Number, FirstUnixMs: e.First.UnixMilli(), LastUnixMs: e.Last.UnixMilli(), Count: uint32(e.Count), Level: e.Level.String(), Message: e.Message,
	}
	for _, f := range e.Fields {
		m.Fields = append(m.Fields, &v1alpha1.EventField{Name: f.Name, Value: f.Value})
	}
	return m
}

// Ring keeps the newest events. If there are too many, the oldest of the most frequent kind make
// room: thousands of sidecars that reconnect leave what else has happened. It is safe for
// concurrent use.
type Ring struct {
	mu     sync.Mutex
	events []*Event // by number
	number uint64
	latest live.Value[uint64]
}

// New makes an empty ring.
func New() *Ring { return &Ring{} }

// Tee returns a logger that writes to log, and keeps its lines of INFO and above.
func (r *Ring) Tee(log *slog.Logger) *slog.Logger {
	return slog.New(&handler{ring: r, next: log.Handler()})
}

// Logger writes to the ring alone: events that are too many for a log.
func (r *Ring) Logger() *slog.Logger { return slog.New(&handler{ring: r}) }

// Latest holds the number of the newest event, once there is one.
func (r *Ring) Latest() *live.Value[uint64] { return &r.latest }

// After returns the events after a number, from a time on, the oldest first.
func (r *Ring) After(number uint64, from time.Time) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, found := slices.BinarySearchFunc(r.events, number, func(e *Event, n uint64) int {
		switch {
		case e.Number < n:
			return -1
		case e.Number > n:
			return 1
		}
		return 0
	})
	if found {
		at++
	}
	var all []Event
	for _, e := range r.events[at:] {
		if !e.Last.Before(from) {
			all = append(all, *e)
		}
	}
	return all
}

func (r *Ring) add(e *Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	e.Number = r.number
	if at := r.same(e); at >= 0 {
		old := r.events[at]
		e.First, e.Count = old.First, old.Count+1
		r.events = slices.Delete(r.events, at, at+1)
	}
	if len(r.events) == most {
		r.makeRoom()
	}
	r.events = append(r.events, e)
	r.latest.Store(e.Number)
}

// makeRoom drops old events of the message that most events have: many, so that adding is cheap.
func (r *Ring) makeRoom() {
	counts, frequent := map[string]int{}, ""
	for _, e := range r.events {
		if counts[e.Message]++; counts[e.Message] > counts[frequent] {
			frequent = e.Message
		}
	}
	left := most / 10
	r.events = slices.DeleteFunc(r.events, func(e *Event) bool {
		if e.Message != frequent || left == 0 {
			return false
		}
		left--
		return true
	})
}

// same is the place of an event of which e is one more, or -1.
func (r *Ring) same(e *Event) int {
	for at := len(r.events) - 1; at >= max(0, len(r.events)-similar); at-- {
		old := r.events[at]
		if e.Last.Sub(old.First) < sameWithin && old.Level == e.Level && old.Message == e.Message && slices.Equal(old.Fields, e.Fields) {
			return at
		}
	}
	return -1
}

// handler keeps records, and hands them on to the next handler if there is one.
type handler struct {
	ring   *Ring
	next   slog.Handler
	prefix string
	fields []Field
}

// Enabled tells whether the ring or the next handler wants records of a level.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= leastLevel || h.next != nil && h.next.Enabled(ctx, level)
}

// Handle keeps a record.
func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= leastLevel {
		e := &Event{First: record.Time, Last: record.Time, Count: 1, Level: record.Level, Message: catalog.Clip(record.Message, maxText/2), Fields: slices.Clip(h.fields)}
		left := maxText
		record.Attrs(func(a slog.Attr) bool {
			f := field(h.prefix, a)
			if left -= len(f.Name) + len(f.Value); left > 0 {
				e.Fields = append(e.Fields, f)
			}
			return left > 0
		})
		h.ring.add(e)
	}
	if h.next != nil && h.next.Enabled(ctx, record.Level) {
		return h.next.Handle(ctx, record)
	}
	return nil
}

func field(prefix string, a slog.Attr) Field {
	return Field{prefix + a.Key, catalog.Clip(a.Value.Resolve().String(), maxText/2)}
}

// WithAttrs is as [slog.Handler] has it.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.fields = slices.Clip(next.fields)
	for _, a := range attrs {
		next.fields = append(next.fields, field(h.prefix, a))
	}
	if next.next != nil {
		next.next = next.next.WithAttrs(attrs)
	}
	return &next
}

// WithGroup is as [slog.Handler] has it.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.prefix += name + "."
	if next.next != nil {
		next.next = next.next.WithGroup(name)
	}
	return &next
}
