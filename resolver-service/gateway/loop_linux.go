package gateway

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// loop passes bytes for many pairs in one goroutine, which alone touches the pairs
// once they are added. Descriptors are watched edge-triggered, once, for as long as
// they are open: a pair remembers what it may still read or write, and is moved on
// until nothing can be.
type loop struct {
	cfg     relayConfig
	epoll   int
	wake    int    // an eventfd: there are jobs
	buf     []byte // for whatever is being passed on right now
	pipes   pipes
	stalls  stalls
	answers answers
	young   young
	busy    []*pair       // used up their turn and have more to do
	door    *acceptor     // takes new connections; nil where none does
	over    bool          // the loop is to end
	ended   chan struct{} // closed when it has

	mu      sync.Mutex
	pairs   []*pair // by slot; nil where free
	free    []int32 // slots
	nextTag int32
	jobs    []func() // for the loop to do
	closed  bool     // nothing is added any more
}

const (
	// loopBuffer is read at once; whatever fills it counts as bulk.
	loopBuffer = 32 << 10
	// turn is how much one pair may pass on in one direction before others come.
	turn = 1 << 20
	// eventBatch is how many events are taken from the kernel at once.
	eventBatch = 128
	// everything a pair wants to know of its descriptors.
	watched = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff
	// yieldEvery is less than what Go's runtime lets a goroutine run without a pause
	// (10 ms). Beyond that it would take the processor away at the next wait, and then
	// look every 20 µs, for a millisecond, whether to do so again: a fifth of all CPU time.
	yieldEvery = 5 * time.Millisecond
	// These are no slots: they tell the events of other descriptors.
	wakeSlot    = -1
	doorSlot    = -2
	arrivalSlot = -3
)

func newLoop(cfg relayConfig) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	l := &loop{cfg: cfg, epoll: epoll, wake: wake, buf: make([]byte, loopBuffer), stalls: stalls{sweep: sweep{after: cfg.stall}}, answers: answers{sweep: sweep{after: cfg.answer}}, young: young{sweep: sweep{after: cfg.dial}}, ended: make(chan struct{})}
	if err := l.watch(wake, unix.EPOLLIN, wakeSlot, 0); err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return nil, err
	}
	return l, nil
}

// watch asks for a descriptor's events. Each carries the slot of its pair and, in the
// lowest bit of tag, the side; the rest of tag tells users of one slot apart.
func (l *loop) watch(fd int, events uint32, slot, tag int32) error {
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: slot, Pad: tag})
	if err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

var errRelayClosed = errors.New("relay is closed")

// add makes the descriptors of a pair the loop's own. After an error they are still
// the caller's.
func (l *loop) add(p *pair) error {
	l.mu.Lock() // until both are watched: the loop looks no pair up before
	defer l.mu.Unlock()
	if l.closed {
		return errRelayClosed
	}
	if n := len(l.free); n > 0 {
		p.slot, l.free = l.free[n-1], l.free[:n-1]
	} else {
		p.slot = int32(len(l.pairs))
		l.pairs = append(l.pairs, nil)
	}
	p.tag = l.nextTag
	l.nextTag += 2
	err := l.watch(p.backend.fd, watched, p.slot, p.tag|1)
	if err == nil && p.dialing == nil {
		if err = l.watch(p.client.fd, watched, p.slot, p.tag); err != nil {
			l.unwatch(p.backend.fd)
		}
	}
	if err != nil {
		l.free = append(l.free, p.slot)
		return err
	}
	l.pairs[p.slot] = p
	return nil
}

func (l *loop) unwatch(fd int) { unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// post gives the loop something to do. Where the loop is over it is never done.
func (l *loop) post(job func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.jobs = append(l.jobs, job)
	unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// call is post and waits until it is done, or the loop is over.
func (l *loop) call(job func()) {
	done := make(chan struct{})
	l.post(func() { defer close(done); job() })
	select {
	case <-done:
	case <-l.ended:
	}
}

// run waits in the system call itself rather than in Go's network poller: that takes
// four system calls where this takes one, and threads that wake one another.
// It holds a processor of the runtime's while it waits; see [Loops].
func (l *loop) run() {
	defer l.closeAll()
	events := make([]unix.EpollEvent, eventBatch)
	ready := make([]*pair, 0, eventBatch)
	yielded := time.Now()
	for !l.over {
		n, err := unix.EpollWait(l.epoll, events, l.wait())
		if err != nil && err != unix.EINTR {
			l.cfg.logger.Error("gateway relay can't wait for events and ends its connections", "err", err)
			return
		}
		ready = l.note(events[:max(n, 0)], ready[:0])
		ready = append(ready, l.busy...)
		l.busy = l.busy[:0]
		for i, p := range ready {
			l.advance(p)
			ready[i] = nil
		}
		l.others(events[:max(n, 0)])
		now := time.Now()
		l.endStalled(now)
		l.endSilent(now)
		l.settle(now)
		if l.door != nil {
			l.door.endLate(now)
		}
		if now.Sub(yielded) > yieldEvery {
			runtime.Gosched()
			yielded = now
		}
	}
}

// wait is how long the loop may wait for events, in milliseconds; -1 is without limit.
func (l *loop) wait() int {
	if len(l.busy) > 0 {
		return 0
	}
	least := sooner(l.stalls.wait(len(l.stalls.behind)), l.answers.wait(len(l.answers.missing)))
	least = sooner(least, l.young.wait(len(l.young.pairs)))
	if l.door != nil {
		least = sooner(least, l.door.arrivals.wait(len(l.door.arrivals.waiting)))
	}
	return least
}

// sooner is the shorter of two times to wait, of which -1 is without limit.
func sooner(a, b int) int {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return min(a, b)
}

// others sees to what is no pair's.
func (l *loop) others(events []unix.EpollEvent) {
	for i := range events {
		switch events[i].Fd {
		case doorSlot:
			if l.door != nil {
				l.door.open()
			}
		case arrivalSlot:
			if l.door != nil {
				l.door.more(events[i].Pad, events[i].Events)
			}
		case wakeSlot:
			unix.Read(l.wake, make([]byte, 8))
			l.mu.Lock()
			jobs := l.jobs
			l.jobs = nil
			l.mu.Unlock()
			for _, job := range jobs {
				job()
			}
		}
	}
}

// note tells pairs what became possible, and lists each of them once.
func (l *loop) note(events []unix.EpollEvent, ready []*pair) []*pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		e := &events[i]
		if e.Fd < 0 {
			continue
		}
		p := l.pairs[e.Fd]
		if p == nil || p.tag != e.Pad&^1 {
			continue // ended, and its event was on the way
		}
		p.side(e.Pad & 1).note(e.Events)
		if !p.queued {
			p.queued = true
			ready = append(ready, p)
		}
	}
	return ready
}

// release closes a pair's descriptors and forgets it.
func (l *loop) release(p *pair, closeFD func(int)) {
	l.forget(p) // before the close: a new pair can't have the descriptors and the slot
	for _, e := range []*end{&p.client, &p.backend} {
		closeFD(e.fd)
		if e.pipe != nil {
			l.pipes.put(e.pipe)
		}
	}
	of := p.of
	*p = pair{ended: true}
	l.cfg.ended(of)
}

// handBack forgets a pair whose backend could not be reached, and lets go of its client.
func (l *loop) handBack(p *pair, err error) {
	l.forget(p)
	unix.Close(p.backend.fd)
	client, dialing := p.client.fd, p.dialing
	*p = pair{ended: true}
	dialing.failed(client, dialing.first, err)
}

func (l *loop) forget(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pairs[p.slot] = nil
	l.free = append(l.free, p.slot)
}

func (l *loop) closeAll() {
	l.mu.Lock()
	l.closed = true
	left := l.pairs
	l.mu.Unlock()
	for _, p := range left {
		if p != nil {
			l.release(p, closeWithReset)
		}
	}
	if l.door != nil {
		l.door.dropAll()
	}
	l.pipes.close()
	close(l.ended)
	unix.Close(l.epoll)
	unix.Close(l.wake)
}
