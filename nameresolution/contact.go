package nameresolution

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// contact knows whether the source of the view is being heard, and what to tell of
// it. It is asked only when a lookup has to wait, is refused or is explained.
type contact struct {
	log *slog.Logger

	mu     sync.Mutex
	heard  bool
	since  time.Time // when heard last changed; monotonic
	err    error     // why it is not heard; nil before the first attempt has ended
	logged string    // the error that the log has
	blind  func() error
}

func newContact(log *slog.Logger) *contact { return &contact{log: log, since: time.Now()} }

// gain notes that the source is heard.
func (c *contact) gain(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		return
	}
	away := time.Since(c.since)
	if c.err != nil {
		c.log.Info("the view is fresh again", "from", from, "away", away.Round(time.Millisecond).String())
	} else {
		c.log.Info("following the view", "from", from)
	}
	c.heard, c.since, c.err, c.logged = true, time.Now(), nil, ""
}

// lose notes that the source is not heard. The log has each reason once.
func (c *contact) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		c.heard, c.since = false, time.Now()
	}
	c.err = err
	if text := err.Error(); text != c.logged {
		c.logged = text
		c.log.Warn("the view is not being updated; lookups go on with what is there, and the attempts to get it too", "err", err)
	}
}

// why says why there is no fresh view; it is empty when there is one.
func (c *contact) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		return ""
	}
	var reason error
	if c.blind != nil {
		reason = c.blind() // the root of the trouble, when it is in this process
	}
	switch {
	case reason != nil:
		return reason.Error()
	case c.err != nil:
		return fmt.Sprintf("%v (for %s)", c.err, time.Since(c.since).Round(time.Second))
	default:
		return "the first attempt has not ended yet"
	}
}
