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
	log    *slog.Logger
	source string // for people, with its address

	mu     sync.Mutex
	heard  bool
	view   bool      // there is one, perhaps of before
	since  time.Time // when heard last changed; monotonic
	err    error     // why it is not heard; nil before the first attempt has ended
	silent error     // that it was reached, and has said nothing since; nil otherwise
	logged string    // the error that the log has
	at     time.Time // since when
	blind  func() error
}

func newContact(log *slog.Logger, source string) *contact {
	return &contact{log: log, source: source, since: time.Now()}
}

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
	c.heard, c.view, c.since, c.err, c.silent, c.logged = true, true, time.Now(), nil, nil, ""
}

// reach notes that the source was reached and has yet to say something.
func (c *contact) reach(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = fmt.Errorf("%s was reached and has sent no view yet; see why it is not ready", source)
}

// again is how long the log is spared another reason while the source stays away.
const again = time.Minute

// lose notes that the source is not heard. The log has the first reason, and another
// one when a while has passed.
func (c *contact) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		c.heard, c.since = false, time.Now()
	}
	c.err, c.silent = err, nil
	if text := err.Error(); c.logged == "" || text != c.logged && time.Since(c.at) > again {
		c.logged, c.at = text, time.Now()
		c.warn(text)
	}
}

// missing notes that there is no view when the first lookups have waited for it in vain, though no
// attempt has failed yet. It is called once.
func (c *contact) missing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.view && c.logged == "" {
		c.warn(c.cause())
	}
}

// warn wants the lock.
func (c *contact) warn(cause string) {
	message := "no view yet: lookups end with not ready until it arrives"
	if c.view {
		message = "the view is not being updated; lookups use the last one"
	}
	c.log.Warn(message, "from", c.source, "err", cause)
}

// away is for how long the source has not been heard; 0 while it is.
func (c *contact) away() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		return 0
	}
	return time.Since(c.since)
}

// old notes that what is served is from so long ago.
func (c *contact) old(age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view, c.since = true, time.Now().Add(-age)
}

// why says why there is no fresh view, and for how long; it is empty when there is
// one.
func (c *contact) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		return ""
	}
	return fmt.Sprintf("%s (for %s now)", c.cause(), time.Since(c.since).Round(time.Second))
}

// cause wants the lock.
func (c *contact) cause() string {
	reason := "the first attempt has not ended yet"
	if c.err != nil {
		reason = c.err.Error()
	}
	if c.silent != nil {
		reason = c.silent.Error()
	}
	if c.blind != nil {
		if err := c.blind(); err != nil { // the root of the trouble, in this process
			reason = err.Error()
		}
	}
	return reason
}
