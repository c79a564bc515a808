package gateway

import "time"

// sweep says when to look again at things that have a time limit, so that none goes much
// beyond it. A loop has no timers: it looks at all of them now and then, and waits without
// limit while there are none.
type sweep struct {
	after  time.Duration // the limit; not positive for none
	looked time.Time
}

// begin is called before a thing is added to n others.
func (s *sweep) begin(n int) {
	if n == 0 {
		s.looked = time.Now()
	}
}

func (s *sweep) every() time.Duration { return max(s.after/8, time.Millisecond) }

// wait is how long the loop may wait for events while there are n things, in milliseconds
// as for epoll_wait; -1 for without limit.
func (s *sweep) wait(n int) int {
	if n == 0 {
		return -1
	}
	return int(s.every().Milliseconds())
}

// due tells whether to look at n things now.
func (s *sweep) due(n int, now time.Time) bool {
	if n == 0 || now.Sub(s.looked) < s.every() {
		return false
	}
	s.looked = now
	return true
}
