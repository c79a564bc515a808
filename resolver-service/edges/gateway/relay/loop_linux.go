package relay

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Loop passes bytes for many pairs in one goroutine, which alone touches the pairs once they are
// added. It watches descriptors edge-triggered, once, for as long as they are open. A pair
// remembers which of its sockets it may still read or write, and the loop advances it until nothing
// can be.
//
// The owner of a relay may have a loop do more, with jobs and a [Handler]. Only jobs and the
// handler may call Handle, Watch, Unwatch and Connect.
type Loop struct {
	cfg      Config
	epoll    int
	wake     int    // an eventfd: there are jobs
	buf      []byte // for the bytes that are being passed on right now
	pipes    pipes
	timeouts timeouts
	busy     []*pair       // used up their quantum and have more to do
	handler  Handler       // nil for none
	expires  time.Duration // how long the handler lets the loop wait
	over     bool          // the loop is to end
	ended    chan struct{} // closed when it has

	mu      sync.Mutex
	pairs   []*pair // by slot; nil where free
	free    []int32 // slots
	nextTag int32
	jobs    []func() // for the loop to do
	closed  bool     // nothing is added any more
}

// Handler gets the events of the descriptors that a loop watches for it. The loop calls it, and
// serves no pair meanwhile: it must not block.
type Handler interface {
	// Ready is called with the events of the descriptor that is watched under an ID. It may
	// have been unwatched since.
	Ready(id int32, events uint32)
	// Expire is called after each wait of the loop, to end what has reached a time limit. It
	// returns how long the loop may wait before the next call; see [Never].
	Expire(now time.Time) (wait time.Duration)
	// Close is called once, when the loop ends.
	Close()
}

const (
	// loopBuffer is read at once; whatever fills it counts as bulk.
	loopBuffer = 32 << 10
	// quantum is how much one pair may pass on in one direction before others come.
	quantum = 1 << 20
	// eventBatch is how many events are taken from the kernel at once.
	eventBatch = 128
	// watched is everything that a pair has to know of its descriptors.
	watched = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff
	// yieldEvery is less than what Go's runtime lets a goroutine run without a pause
	// (10 ms). Beyond that it would take the processor away at the next wait, and then
	// look every 20 µs, for a millisecond, whether to do so again: a fifth of all CPU time.
	yieldEvery = 5 * time.Millisecond
	// These are no slots: they tell the events of other descriptors.
	wakeSlot    = -1
	handlerSlot = -2
)

func newLoop(cfg Config) (*Loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	l := &Loop{
		cfg: cfg, epoll: epoll, wake: wake, buf: make([]byte, loopBuffer),
		timeouts: newTimeouts(cfg), expires: Never, ended: make(chan struct{}),
	}
	if err := l.watch(wake, unix.EPOLLIN, wakeSlot, 0); err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return nil, err
	}
	return l, nil
}

// watch asks for a descriptor's events. Each carries the slot of its pair and, in the
// lowest bit of tag, the side; the rest of tag tells users of one slot apart.
func (l *Loop) watch(fd int, events uint32, slot, tag int32) error {
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: slot, Pad: tag})
	if err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

var errClosed = errors.New("relay is closed")

// add makes the descriptors of a pair the loop's own. After an error they are still
// the caller's.
func (l *Loop) add(p *pair) error {
	l.mu.Lock() // until both are watched: the loop looks no pair up before
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
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
			l.Unwatch(p.backend.fd)
		}
	}
	if err != nil {
		l.free = append(l.free, p.slot)
		return err
	}
	l.pairs[p.slot] = p
	return nil
}

// Handle sets the loop's handler.
func (l *Loop) Handle(h Handler) { l.handler = h }

// Watch has the loop call its handler with a descriptor's events, as for epoll_ctl.
func (l *Loop) Watch(fd int, events uint32, id int32) error {
	return l.watch(fd, events, handlerSlot, id)
}

// Unwatch ends Watch.
func (l *Loop) Unwatch(fd int) { unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// Post gives the loop a job to do. Once the loop has ended it does none.
func (l *Loop) Post(job func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.jobs = append(l.jobs, job)
	unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// Call is Post, and waits until the job is done or the loop has ended.
func (l *Loop) Call(job func()) {
	done := make(chan struct{})
	l.Post(func() { defer close(done); job() })
	select {
	case <-done:
	case <-l.ended:
	}
}

// run waits in the system call itself rather than in Go's network poller: that takes
// four system calls where this takes one, and threads that wake one another.
// It holds a processor of the runtime's while it waits; see [Loops].
func (l *Loop) run() {
	defer l.closeAll()
	events := make([]unix.EpollEvent, eventBatch)
	ready := make([]*pair, 0, eventBatch)
	yielded := time.Now()
	for !l.over {
		n, err := unix.EpollWait(l.epoll, events, l.wait())
		if err != nil && err != unix.EINTR {
			l.cfg.Logger.Error("gateway relay can't wait for events and ends its connections", "err", err)
			return
		}
		ready = l.note(events[:max(n, 0)], ready[:0])
		ready = append(ready, l.busy...)
		l.busy = l.busy[:0]
		for i, p := range ready {
			l.advance(p)
			ready[i] = nil
		}
		l.handle(events[:max(n, 0)])
		now := time.Now()
		l.endLate(now)
		if l.handler != nil {
			l.expires = l.handler.Expire(now)
		}
		if now.Sub(yielded) > yieldEvery {
			runtime.Gosched()
			yielded = now
		}
	}
}

// wait is how long the loop may wait for events, in milliseconds; -1 is without limit.
func (l *Loop) wait() int {
	if len(l.busy) > 0 {
		return 0
	}
	wait := sooner(l.timeouts.wait(), l.expires)
	if wait < 0 {
		return -1
	}
	return int(wait.Milliseconds())
}

// handle does the jobs and passes the events on that are no pair's.
func (l *Loop) handle(events []unix.EpollEvent) {
	for i := range events {
		switch e := &events[i]; e.Fd {
		case handlerSlot:
			if l.handler != nil {
				l.handler.Ready(e.Pad, e.Events)
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

// note tells pairs what has become possible, and lists each of them once.
func (l *Loop) note(events []unix.EpollEvent, ready []*pair) []*pair {
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
		p.sideOf(e.Pad & 1).note(e.Events)
		if !p.queued {
			p.queued = true
			ready = append(ready, p)
		}
	}
	return ready
}

// end resets the pairs of owners that are over.
func (l *Loop) end(over func(Owner) bool) {
	l.mu.Lock()
	all := slices.Clone(l.pairs)
	l.mu.Unlock()
	for _, p := range all {
		if p != nil && over(p.owner) {
			l.release(p, ResetFD)
		}
	}
}

// release closes a pair's descriptors and forgets it.
func (l *Loop) release(p *pair, closeOne func(int)) {
	l.forget(p) // before the close: a new pair can't have the descriptors and the slot
	for _, s := range []*side{&p.client, &p.backend} {
		closeOne(s.fd)
		if s.pipe != nil {
			l.pipes.put(s.pipe)
		}
	}
	owner := p.owner
	*p = pair{ended: true}
	owner.Closed()
}

// Connect is [Relay.Pass] with a client's descriptor and a backend that the loop has yet to
// connect to. The backend gets first, the client's first bytes, of which Connect keeps no part.
// If the loop can't reach the backend in time, it calls failed with the client's descriptor,
// which is the caller's again, and a copy of first. After an error the descriptor always was.
//
// A backend on this machine is connected to at once, and takes the bytes.
func (l *Loop) Connect(client int, first []byte, owner Owner, to netip.AddrPort, failed func(client int, first []byte, err error)) error {
	backend, err := startConnect(to)
	if err != nil {
		return err
	}
	p := &pair{client: side{fd: client}, backend: side{fd: backend}, owner: owner, traffic: owner.Traffic()}
	n, err := again(unix.Write(backend, first))
	switch {
	case err != nil:
		unix.Close(backend)
		failed(client, bytes.Clone(first), err)
		return nil
	case n < 0:
		p.backend.rest = bytes.Clone(first)
		p.dialing = &dialing{first: p.backend.rest, since: time.Now(), failed: failed}
	case n < len(first):
		p.backend.rest = bytes.Clone(first[n:])
	}
	if err = l.add(p); err != nil {
		unix.Close(backend)
		return err
	}
	l.timeouts.connecting.add(p)
	return nil
}

// handBack forgets a pair whose backend could not be reached, and lets go of its client.
func (l *Loop) handBack(p *pair, err error) {
	l.forget(p)
	unix.Close(p.backend.fd)
	client, dialing := p.client.fd, p.dialing
	*p = pair{ended: true}
	dialing.failed(client, dialing.first, err)
}

func (l *Loop) forget(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pairs[p.slot] = nil
	l.free = append(l.free, p.slot)
}

func (l *Loop) closeAll() {
	l.mu.Lock()
	l.closed = true
	left := l.pairs
	l.mu.Unlock()
	for _, p := range left {
		if p != nil {
			l.release(p, ResetFD)
		}
	}
	if l.handler != nil {
		l.handler.Close()
	}
	l.pipes.close()
	close(l.ended)
	unix.Close(l.epoll)
	unix.Close(l.wake)
}
