package gateway

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// loop passes bytes for many pairs in one goroutine, which alone touches the pairs
// once they are added. Descriptors are watched edge-triggered, once, for as long as
// they are open: a pair remembers what it may still read or write, and is moved on
// until nothing can be.
type loop struct {
	cfg   relayConfig
	epoll int
	file  *os.File // of epoll
	wake  int      // an eventfd that ends the loop
	buf   []byte   // for whatever is being passed on right now
	pipes pipes
	busy  []*pair // used up their turn and have more to do

	mu      sync.Mutex
	pairs   []*pair // by slot; nil where free
	free    []int32 // slots
	nextTag int32
	closed  bool
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
	// wakeSlot is the slot of the eventfd.
	wakeSlot = -1
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
	l := &loop{cfg: cfg, epoll: epoll, wake: wake, buf: make([]byte, loopBuffer)}
	if err = l.watch(wake, unix.EPOLLIN, wakeSlot, 0); err == nil {
		err = unix.SetNonblock(epoll, true) // so that NewFile has it watched
	}
	if err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return nil, err
	}
	l.file = os.NewFile(uintptr(epoll), "epoll")
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

// add makes the descriptors of a pair the loop's own. After an error they are still
// the caller's.
func (l *loop) add(p *pair) error {
	l.mu.Lock() // until both are watched: the loop looks no pair up before
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("relay is closed")
	}
	if n := len(l.free); n > 0 {
		p.slot, l.free = l.free[n-1], l.free[:n-1]
	} else {
		p.slot = int32(len(l.pairs))
		l.pairs = append(l.pairs, nil)
	}
	p.tag = l.nextTag
	l.nextTag += 2
	err := l.watch(p.client.fd, watched, p.slot, p.tag)
	if err == nil {
		if err = l.watch(p.backend.fd, watched, p.slot, p.tag|1); err != nil {
			l.unwatch(p.client.fd)
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

// end makes run close everything and return.
func (l *loop) end() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (l *loop) run() {
	defer l.closeAll()
	events := make([]unix.EpollEvent, eventBatch)
	ready := make([]*pair, 0, eventBatch)
	wait, err := l.waiter(events)
	for err == nil {
		var n int
		if n, err = wait(); err != nil {
			break
		}
		var over bool
		if ready, over = l.note(events[:n], ready[:0]); over {
			return
		}
		ready = append(ready, l.busy...)
		l.busy = l.busy[:0]
		for i, p := range ready {
			l.advance(p)
			ready[i] = nil
		}
	}
	l.cfg.logger.Error("gateway relay can't wait for events and ends its connections", "err", err)
}

// waiter returns a function that takes events from the kernel, and waits for some
// unless pairs are busy. It waits in Go's own poller, which watches the epoll descriptor
// as it does a socket. To block in the system call itself would hold a thread and a
// processor of the runtime's, which it then keeps taking away and giving back: that
// cost a fifth of all CPU time where it was tried.
func (l *loop) waiter(events []unix.EpollEvent) (wait func() (int, error), err error) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var n int
	poll := func(fd uintptr) bool {
		n, err = unix.EpollWait(int(fd), events, 0)
		if err == unix.EINTR {
			n, err = 0, nil
		}
		return n > 0 || err != nil || len(l.busy) > 0
	}
	return func() (int, error) {
		if pollErr := raw.Read(poll); pollErr != nil {
			return 0, pollErr
		}
		return max(n, 0), err
	}, nil
}

// note tells pairs what became possible, and lists each of them once.
func (l *loop) note(events []unix.EpollEvent, ready []*pair) (_ []*pair, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		e := &events[i]
		if e.Fd == wakeSlot {
			return ready, true
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
	return ready, false
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
	*p = pair{ended: true}
	l.cfg.ended()
}

// handBack forgets a pair whose backend could not be reached, and lets go of its client.
func (l *loop) handBack(p *pair, err error) {
	l.forget(p)
	l.unwatch(p.client.fd)
	unix.Close(p.backend.fd)
	client, dialing := p.client.fd, p.dialing
	*p = pair{ended: true}
	dialing.failed(client, err)
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
	l.pipes.close()
	l.file.Close()
	unix.Close(l.wake)
}
