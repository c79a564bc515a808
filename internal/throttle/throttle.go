// Package throttle bounds the lines of the log that an outsider can cause.
package throttle

import (
	"container/list"
	"log/slog"
	"sync"
	"time"
)

// maxKeys is how many keys a Log keeps. While it keeps that many, all further keys count as
// one, so a Log never writes more than maxKeys+1 bursts in the interval.
const maxKeys = 1000

// Interval is how often an outsider can cause one and the same line, unless a part has a reason
// for another interval.
const Interval = 10 * time.Second

// Log writes one line, or a burst, for each key in an interval. It is safe for concurrent use.
type Log struct {
	log   *slog.Logger
	every time.Duration
	burst int // lines in an interval

	mu    sync.Mutex
	keys  map[string]*list.Element
	order list.List // of *line, the oldest interval first
}

type line struct {
	key        string
	began      time.Time // of the interval
	written    int       // in it
	suppressed int       // in it
}

// New makes a Log that writes at most one line for each key in every.
func New(log *slog.Logger, every time.Duration) *Log { return NewBurst(log, every, 1) }

// NewBurst makes a Log that writes at most burst lines for each key in every.
func NewBurst(log *slog.Logger, every time.Duration, burst int) *Log {
	return &Log{log: log, every: every, burst: burst, keys: map[string]*list.Element{}}
}

// Warn writes a warning, unless the key had a line within the interval. A key names the
// cause, such as the app or the reason, and never a thing that an outsider can vary at will.
// The line says as "suppressed" how many were left out since the last one.
func (l *Log) Warn(key, msg string, args ...any) {
	if args, ok := l.allow(key, args); ok {
		l.log.Warn(msg, args...)
	}
}

// Info is Warn for the level INFO.
func (l *Log) Info(key, msg string, args ...any) {
	if args, ok := l.allow(key, args); ok {
		l.log.Info(msg, args...)
	}
}

// Error is Warn for an error.
func (l *Log) Error(key, msg string, args ...any) {
	if args, ok := l.allow(key, args); ok {
		l.log.Error(msg, args...)
	}
}

func (l *Log) allow(key string, args []any) ([]any, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	e := l.keys[key]
	if e == nil && len(l.keys) >= maxKeys {
		if l.makeRoom(now); len(l.keys) >= maxKeys {
			key = "" // shared by all keys that there is no room for
			e = l.keys[key]
		}
	}
	if e == nil {
		l.keys[key] = l.order.PushBack(&line{key: key, began: now, written: 1})
		return args, true
	}
	last := e.Value.(*line)
	if now.Sub(last.began) < l.every {
		if last.written < l.burst {
			last.written++
			return args, true
		}
		last.suppressed++
		return nil, false
	}
	if last.suppressed > 0 {
		args = append(args[:len(args):len(args)], "suppressed", last.suppressed)
	}
	last.began, last.written, last.suppressed = now, 1, 0
	l.order.MoveToBack(e)
	return args, true
}

// makeRoom forgets the keys whose interval is over.
func (l *Log) makeRoom(now time.Time) {
	for e := l.order.Front(); e != nil; e = l.order.Front() {
		old := e.Value.(*line)
		if now.Sub(old.began) < l.every {
			return
		}
		l.order.Remove(e)
		delete(l.keys, old.key)
	}
}
