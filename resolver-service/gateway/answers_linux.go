package gateway

import (
	"time"

	"golang.org/x/sys/unix"
)

// answers ends pairs whose backend has accepted the connection and says nothing.
type answers struct {
	sweep
	missing []*pair // those without an answer, and some that had one since
}

// note lists a pair once, unless the answer is there.
func (a *answers) note(p *pair) {
	if a.after <= 0 || p.backend.spoke || !p.connected.IsZero() {
		return
	}
	a.begin(len(a.missing))
	p.connected = time.Now()
	a.missing = append(a.missing, p)
}

// due returns the pairs without an answer in time, and forgets those with one. It looks at
// them now and then only.
func (a *answers) due(now time.Time) (silent []*pair) {
	if !a.sweep.due(len(a.missing), now) {
		return nil
	}
	kept := a.missing[:0]
	for _, p := range a.missing {
		switch {
		case p.ended || p.backend.spoke:
		case now.Sub(p.connected) >= a.after:
			silent = append(silent, p)
		default:
			kept = append(kept, p)
		}
	}
	clear(a.missing[len(kept):])
	a.missing = kept
	return silent
}

// endSilent ends the pairs that have had no answer in time, and tells their clients.
func (l *loop) endSilent(now time.Time) {
	for _, p := range l.answers.due(now) {
		if l.advance(p); p.ended || p.backend.spoke { // it may have been us who stood still
			continue
		}
		l.cfg.silent(p.of)
		unix.Write(p.client.fd, p.of.noAnswer())
		l.release(p, func(fd int) { unix.Close(fd) })
	}
}
