package peering

import (
	"log/slog"
	"sync"
	"time"
)

// lines are the lines of the log about one peer: a few at once, and then one every so
// often, however much happens.
type lines struct {
	log *slog.Logger

	mu   sync.Mutex
	left []time.Time // when each of the latest lines was written
	lost int         // lines since the latest
}

// How many lines there are in how long at most.
const (
	maxLines    = 6
	linesWithin = time.Minute
)

func (l *lines) warn(text string, args ...any) {
	if args, ok := l.may(args); ok {
		l.log.Warn(text, args...)
	}
}

func (l *lines) info(text string, args ...any) {
	if args, ok := l.may(args); ok {
		l.log.Info(text, args...)
	}
}

// may tells whether a line may be written, and says in it how many could not be.
func (l *lines) may(args []any) ([]any, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.left) > 0 && now.Sub(l.left[0]) >= linesWithin {
		l.left = l.left[1:]
	}
	if len(l.left) >= maxLines {
		l.lost++
		return nil, false
	}
	l.left = append(l.left, now)
	if l.lost > 0 {
		args = append(args, "unsaid", l.lost)
		l.lost = 0
	}
	return args, true
}
