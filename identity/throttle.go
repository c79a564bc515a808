package identity

import (
	"sync"
	"time"
)

// throttle keeps a log line that would repeat itself from doing so too often.
type throttle struct {
	mu   sync.Mutex
	text string
	at   time.Time
}

// allow tells whether text should be logged: when it differs from the last that was,
// or that was longer ago than every.
func (t *throttle) allow(text string, every time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text == t.text && time.Since(t.at) < every {
		return false
	}
	t.text, t.at = text, time.Now()
	return true
}
