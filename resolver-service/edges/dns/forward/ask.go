package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

const maxTries = 8 // of one question

// ask asks the upstreams in order, each of them twice at most. The next one gets its turn when
// one fails, or says nothing for [Config.Patience]. The last try has all the time that is left.
func (f *Forwarder) ask(l *lookup) *answer {
	ctx, cancel := context.WithTimeout(f.alive, f.cfg.Timeout)
	defer cancel()
	order := f.inOrder(time.Now())
	reasons := make([]string, len(order))
	tries := min(2*len(order), maxTries)
	for i := 0; i < tries && ctx.Err() == nil; i++ {
		u, patience := order[i%len(order)], f.cfg.Patience
		if i == tries-1 {
			patience = f.cfg.Timeout
		}
		a, err := u.ask(ctx, patience, l)
		if err == nil {
			return a
		}
		reasons[i%len(order)] = u.address.String() + ": " + brief(err)
	}
	text, now := "upstreams tried: "+strings.Join(reasons[:min(tries, len(order))], "; "), time.Now()
	return &answer{failure: text, stored: now, expires: now.Add(failureTTL)}
}

// brief is an error without our own address and port, which clients need not know.
func brief(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return err.Error()
}

// inOrder are the upstreams as configured, those that are down after the others.
func (f *Forwarder) inOrder(now time.Time) []*upstream {
	order := slices.Clone(f.upstreams)
	slices.SortStableFunc(order, func(a, b *upstream) int { return cmp.Compare(a.rank(now), b.rank(now)) })
	return order
}

// Status is the health of an upstream, as queries found it.
type Status struct {
	Address netip.AddrPort
	Up      bool
	Since   time.Time // when it stopped answering, if it is not up
	Err     error     // how the last try failed
}

// upstream is a resolver that we ask.
type upstream struct {
	address netip.AddrPort
	log     *throttle.Log

	mu       sync.Mutex
	health   Status
	failures int       // in a row
	failed   time.Time // the last of them
}

const (
	failuresToDown = 3 // in a row put an upstream behind all others, for downFor
	downFor        = 10 * time.Second
	linesEvery     = 10 * time.Second // at most, for the same line of the log
)

// ask asks the upstream. A response code such as SERVFAIL is an error, and no failure of the
// upstream.
func (u *upstream) ask(ctx context.Context, patience time.Duration, l *lookup) (*answer, error) {
	trying, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := l.exchange(trying, u.address)
	if !errors.Is(ctx.Err(), context.Canceled) { // else the forwarder ends
		u.note(err, time.Now())
	}
	if err != nil {
		return nil, err
	}
	switch m.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError, dns.RcodeYXDomain:
		return newAnswer(m, l, time.Now())
	}
	return nil, errors.New(cmp.Or(dns.RcodeToString[m.Rcode], fmt.Sprint("response code ", m.Rcode)))
}

// note keeps the health up to date. A nil error stands for any answer.
func (u *upstream) note(err error, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := &u.health
	if err == nil {
		if !h.Up {
			u.log.Info("up "+u.address.String(), "dns: upstream answers again", "upstream", u.address, "after", now.Sub(h.Since).Round(time.Millisecond))
		}
		h.Up, u.failures = true, 0
		return
	}
	if u.failures++; u.failures == 1 {
		h.Since = now
	}
	h.Err, u.failed = err, now
	if h.Up && u.failures >= failuresToDown {
		h.Up = false
		u.log.Warn("down "+u.address.String(), "dns: upstream does not answer; queries go to the others first until it does", "upstream", u.address, "err", brief(err))
	}
}

// rank is 1 for an upstream that is down, and 0 for one to ask in its place.
func (u *upstream) rank(now time.Time) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.health.Up || now.Sub(u.failed) >= downFor {
		return 0
	}
	return 1
}

// Status returns the health of each upstream, in the configured order.
func (f *Forwarder) Status() []Status {
	all := make([]Status, len(f.upstreams))
	for i, u := range f.upstreams {
		u.mu.Lock()
		all[i] = u.health
		u.mu.Unlock()
	}
	return all
}
