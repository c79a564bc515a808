package gateway

import (
	"time"

	"golang.org/x/sys/unix"
)

// young are the pairs whose backend this loop has begun to connect to. Until one is looked
// at, its backend's socket has no option but no delay: six more system calls would be spent
// on each connection, and most that come in numbers are over by then.
type young struct {
	sweep // its limit is for connecting
	pairs []youngPair
}

type youngPair struct {
	*pair
	since time.Time
}

func (y *young) note(p *pair) {
	y.begin(len(y.pairs))
	y.pairs = append(y.pairs, youngPair{p, time.Now()})
}

// settle ends attempts to connect that take too long, and sets the options of the backends
// that are there.
func (l *loop) settle(now time.Time) {
	if !l.young.due(len(l.young.pairs), now) {
		return
	}
	kept := l.young.pairs[:0]
	for _, p := range l.young.pairs {
		switch {
		case p.ended:
		case p.dialing == nil:
			setKeepAlive(p.backend.fd)
			setMillis(p.backend.fd, unix.TCP_USER_TIMEOUT, l.cfg.stall)
		case now.Sub(p.since) >= l.young.after:
			l.handBack(p.pair, unix.ETIMEDOUT)
		default:
			kept = append(kept, p)
		}
	}
	clear(l.young.pairs[len(kept):])
	l.young.pairs = kept
}
