package nameresolution

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

const (
	// askEvery is the pause between two questions for an app in use. Dapr's mDNS resolver
	// does not send another one sooner than 2.5 s after one that found nothing.
	askEvery   = 3 * time.Second
	askTimeout = 5 * time.Second
	// unnamedFor is in how many answers in a row an address must be missing to be dropped:
	// packets get lost, resolvers answer by chance, and fail.
	unnamedFor = 3

	// checkEvery is how often one of the addresses in use is connected to.
	checkEvery   = time.Second
	checkTimeout = time.Second
	// An address that failed is connected to again after firstCheck, then in doubling pauses:
	// up to lastCheck while it refuses, up to lastReturn where it connects and fails again.
	firstCheck = time.Second
	lastCheck  = 5 * time.Second
	lastReturn = time.Minute

	// inUse is how long after a lookup an app counts as in use: nothing is asked for others.
	// They are forgotten in the end.
	inUse       = 30 * time.Second
	forgetAfter = 10 * time.Minute
)

// search keeps asking the local resolver for one app, and connects to what it finds, while
// the app is in use. Its goroutine is that of run.
type search struct {
	app      catalog.App
	used     atomic.Bool
	wake     chan struct{} // has room for one
	answered chan struct{} // closed once known

	// Guarded by the lock of locals.
	known  bool  // an answer has come, or was waited for in vain
	heard  bool  // an answer has come
	err    error // of the last answer
	places []*place
	turn   int // of the checks
}

// place is one address of an app.
type place struct {
	address string
	unnamed int // answers in a row without it
	down    bool
	check   time.Time // when it is connected to again, while it is down
	pause   time.Duration
	back    time.Time // when it was last found to be up again
}

// fail takes the address out of use, and tells whether it was in use.
func (p *place) fail(now time.Time) bool {
	if p.down {
		return false
	}
	if now.Sub(p.back) > lastReturn {
		p.pause = 0
	}
	p.pause = min(max(2*p.pause, firstCheck), lastReturn)
	p.down, p.check = true, now.Add(p.pause)
	return true
}

// use notes that the app is in use.
func (s *search) use() {
	if s.used.Load() {
		return // so that many lookups at a time only read
	}
	s.used.Store(true)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *search) place(address string) *place {
	i := slices.IndexFunc(s.places, func(p *place) bool { return p.address == address })
	if i < 0 {
		return nil
	}
	return s.places[i]
}

// usable lists the addresses to call: those that are up or, if they are all there is, all.
func (s *search) usable(only bool) []string {
	var up, all []string
	for _, p := range s.places {
		all = append(all, p.address)
		if !p.down {
			up = append(up, p.address)
		}
	}
	if len(up) == 0 && only {
		return all
	}
	return up
}

// String describes the search, for people.
func (s *search) String() string {
	var down []string
	for _, p := range s.places {
		if p.down {
			down = append(down, p.address)
		}
	}
	switch {
	case len(down) > 0:
		return fmt.Sprintf("local resolver: it names %d, of which %s did not answer when last tried", len(s.places), strings.Join(down, ", "))
	case len(s.places) > 0:
		return fmt.Sprintf("local resolver: it names %d", len(s.places))
	case !s.heard:
		return "local resolver: it has not answered yet"
	case s.err != nil:
		return "local resolver: " + s.err.Error()
	default:
		return "local resolver: it found nothing"
	}
}

// begin starts a search. It wants the lock.
func (l *locals) begin(app catalog.App) *search {
	s := &search{app: app, wake: make(chan struct{}, 1), answered: make(chan struct{})}
	searches := l.searches.Load().With(catalog.Edit[*search]{App: app, Value: s})
	l.searches.Store(&searches)
	l.r.parts.Go(func() { l.run(s) })
	return s
}

// target is the app that a name stands for.
func (l *locals) target(name catalog.App) catalog.App {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry, _ := l.left(name); entry != nil {
		return entry.App
	}
	return name
}

// run asks and checks until nobody has looked the app up for a while, or the resolver closes.
func (l *locals) run(s *search) {
	var ask time.Time
	used := time.Now()
	for l.ctx.Err() == nil {
		if s.used.Swap(false) {
			used = time.Now()
		}
		idle := time.Since(used)
		if idle < inUse {
			if !time.Now().Before(ask) {
				l.ask(s)
				ask = time.Now().Add(askEvery)
			}
			l.check(s)
			live.Sleep(l.ctx, checkEvery)
			continue
		}
		if l.forget(s, idle) {
			return
		}
		timer := time.NewTimer(forgetAfter - idle)
		select {
		case <-timer.C:
		case <-s.wake: // or was woken while it was in use, and looks again
		case <-l.ctx.Done():
		}
		timer.Stop()
	}
}

// ask asks the local resolver once.
func (l *locals) ask(s *search) {
	select {
	case l.slots <- struct{}{}:
	case <-l.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, askTimeout)
	addresses, err := l.resolver.Find(ctx, l.target(s.app), l.r.self.Port)
	cancel()
	<-l.slots
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := s.take(addresses, err)
	if changed || !s.known {
		l.know(s)
	}
}

// know has lookups go by what a search has found so far. It wants the lock.
func (l *locals) know(s *search) {
	first := !s.known
	s.known = true
	l.publish()
	if first {
		close(s.answered)
	}
}

// take takes an answer in, and tells whether other addresses stand than before.
func (s *search) take(addresses []string, err error) (changed bool) {
	s.heard, s.err = true, err
	for _, p := range s.places {
		p.unnamed++
	}
	for _, address := range addresses {
		if p := s.place(address); p != nil {
			p.unnamed = 0
			continue
		}
		s.places = append(s.places, &place{address: address})
		changed = true
	}
	before := len(s.places)
	s.places = slices.DeleteFunc(s.places, func(p *place) bool { return p.unnamed >= unnamedFor })
	return changed || len(s.places) != before
}

// check connects to one address that is in use, and to those whose time has come of those
// that are not.
func (l *locals) check(s *search) {
	l.mu.Lock()
	due := s.due(time.Now())
	l.mu.Unlock()
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, checkTimeout)
	defer cancel()
	errs := make([]error, len(due))
	var wg sync.WaitGroup
	for i, p := range due {
		wg.Go(func() { errs[i] = l.connect(ctx, p.address) })
	}
	wg.Wait()
	if l.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := false
	for i, p := range due {
		changed = l.judge(s, p, errs[i]) || changed
	}
	if changed {
		l.publish()
	}
}

// due lists what is to be connected to. An address in use that is a host name is not: it
// stands for many instances.
func (s *search) due(now time.Time) (due []*place) {
	var up []*place
	for _, p := range s.places {
		if p.down && !now.Before(p.check) {
			due = append(due, p)
		} else if _, err := netip.ParseAddrPort(p.address); err == nil && !p.down {
			up = append(up, p)
		}
	}
	if len(up) > 0 {
		s.turn++
		due = append(due, up[s.turn%len(up)])
	}
	return due
}

// judge takes the outcome of a check in, and tells whether the address changed between up
// and down. One in use is lost by a refusal only: a machine that is slow is not dead.
func (l *locals) judge(s *search, p *place, err error) (changed bool) {
	now := time.Now()
	switch {
	case !p.down && err != nil && refusedBy(err):
		changed = p.fail(now)
		l.r.log.Info("an instance in this cluster refuses connections; calls go elsewhere if they can until it accepts one",
			"app", s.app.String(), "address", p.address)
	case p.down && now.Before(p.check): // it failed during the check
	case p.down && err != nil:
		p.pause = max(p.pause, min(2*p.pause, lastCheck))
		p.check = now.Add(p.pause)
	case p.down:
		p.down, p.back = false, now
		l.r.log.Info("an instance in this cluster accepts connections again", "app", s.app.String(), "address", p.address)
		changed = true
	}
	return changed
}

// refusedBy tells whether a connection failed since nobody is there.
func refusedBy(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH)
}

// forget ends a search that was not used for so long: after a while or, where nothing was
// found and there is no other way, at once, as the next lookup had better ask than be refused.
func (l *locals) forget(s *search, idle time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.used.Load() {
		return false
	}
	if entry, _ := l.left(s.app); entry != nil && idle < forgetAfter && (len(s.places) > 0 || entry.Outcome() == catalog.OK) {
		return false
	}
	searches := l.searches.Load().With(catalog.Edit[*search]{App: s.app, Remove: true})
	l.searches.Store(&searches)
	l.publish()
	return true
}
