package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// mostTries bounds how often one question goes out.
const mostTries = 8

// attempt is how it went with one upstream.
type attempt struct {
	upstream *upstream
	message  *dns.Msg
	err      error
}

// asking is one question on its way through the upstreams.
type asking struct {
	*Forwarder
	section []byte
	checked bool // CD: the client checks signatures itself
	do      bool
	order   []*upstream
	results chan attempt
	next    int
	running int
	trail   map[*upstream]string
	heard   bool   // an upstream has answered, if with no use
	failure bool   // it was a response that says so itself, such as REFUSED
	options []byte // extended errors of such an answer
}

// ask asks one upstream after the other: the next when one has failed or let us wait, while
// those before may still answer. The first good answer counts.
func (f *Forwarder) ask(ctx context.Context, q question) *answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := time.Now()
	s := &asking{
		Forwarder: f, section: q.lower(), checked: q.flags&wire.FlagCD != 0, do: q.do, order: f.inOrder(),
		results: make(chan attempt, mostTries), trail: map[*upstream]string{},
	}
	patience := time.NewTicker(f.cfg.Patience)
	defer patience.Stop()
	s.start(ctx)
	for s.running > 0 {
		select {
		case r := <-s.results:
			s.running--
			if a := s.judge(r); a != nil {
				return a
			}
			s.start(ctx)
			patience.Reset(f.cfg.Patience)
		case <-patience.C:
			s.order[(s.next-1)%len(s.order)].suspect()
			s.start(ctx)
		case <-ctx.Done():
			return s.nothing(time.Since(begun))
		}
	}
	return s.nothing(time.Since(begun))
}

// start asks the next upstream, each twice at most. Where many questions wait, each waits for
// the one that it was asked of: every exchange has a socket.
func (s *asking) start(ctx context.Context) {
	if s.next >= min(2*len(s.order), mostTries) || ctx.Err() != nil {
		return
	}
	if s.running > 0 && s.exchanges.Load() >= int64(s.cfg.MaxQueries) {
		return
	}
	s.exchanges.Add(1)
	u := s.order[s.next%len(s.order)]
	s.next++
	s.running++
	s.flights.all.Add(1) // the flight that asks is one of them, so it is not zero
	go func() {
		defer s.flights.all.Done()
		defer s.exchanges.Add(-1)
		m, err := s.exchange(ctx, u, s.section, s.checked, s.do)
		switch {
		case err == nil:
			u.worked()
		case ctx.Err() == nil:
			u.failed(err)
		}
		s.results <- attempt{u, m, err}
	}()
}

// judge makes an answer of a result that is one, and notes any other.
func (s *asking) judge(r attempt) *answer {
	if r.err != nil {
		s.trail[r.upstream] = brief(r.err)
		s.heard = s.heard || errors.Is(r.err, errMisfit)
		return nil
	}
	switch r.message.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError, dns.RcodeYXDomain:
		a, err := newAnswer(r.upstream, r.message, s.section, time.Now())
		if err == nil {
			return a
		}
		s.trail[r.upstream] = "a response that can't be read"
	default:
		s.trail[r.upstream] = cmp.Or(dns.RcodeToString[r.message.Rcode], fmt.Sprint("response code ", r.message.Rcode))
		s.failure = true
		s.options = r.upstream.extendedErrors(r.message)
	}
	s.heard = true
	return nil
}

// nothing is the answer where no upstream gave one. It is kept for long enough that nobody's
// repeating makes a flood of it (RFC 9520), and no longer than 5 s.
func (s *asking) nothing(waited time.Duration) *answer {
	var said []string
	for _, u := range s.order {
		if what, ok := s.trail[u]; ok {
			said = append(said, fmt.Sprintf("%s: %s", u.address, what))
		} else if slices.Contains(s.order[:min(s.next, len(s.order))], u) {
			said = append(said, fmt.Sprintf("%s: no answer in %s", u.address, waited.Round(100*time.Millisecond)))
		}
	}
	code, keep := uint16(noReachableAuthority), time.Second
	if s.heard {
		keep = failureTTL
		if !s.failure { // what came was no response to speak of
			code = networkError
		}
	}
	return failed(s.section, code, "upstreams tried: "+strings.Join(said, "; "), s.options, keep, time.Now())
}

// brief is an error without our own address and port, which are nobody's business.
func brief(err error) string {
	var number syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return err.Error()
}

// inOrder are the upstreams as listed, those last that are down or send queries back.
func (f *Forwarder) inOrder() []*upstream {
	order := slices.Clone(f.upstreams)
	slices.SortStableFunc(order, func(a, b *upstream) int { return cmp.Compare(a.rank(), b.rank()) })
	return order
}

func (f *Forwarder) anyUp() bool {
	return slices.ContainsFunc(f.upstreams, func(u *upstream) bool { return u.rank() == 0 })
}

func (f *Forwarder) names() string {
	var all []string
	for _, u := range f.upstreams {
		all = append(all, u.address.String())
	}
	return strings.Join(all, ", ")
}
