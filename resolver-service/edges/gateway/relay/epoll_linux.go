package relay

import (
	"cmp"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxLoops bounds the threads that a relay keeps busy. One loop passes on some 80,000 small
// requests a second; the rest of the program needs the other processors more.
const maxLoops = 2

// Loops is how many processors of Go's runtime a relay keeps from other goroutines, also while
// it waits for the kernel. A program that does more than relay raises GOMAXPROCS by as many.
// Otherwise its other goroutines may wait for up to 10 ms until the runtime takes a processor
// back. The number depends on GOMAXPROCS: ask before you raise it.
func Loops() int { return max(1, min(maxLoops, runtime.GOMAXPROCS(0)/2)) }

// Epoll is the relay of Linux. A pair costs it two descriptors, two epoll entries and one small
// struct. A pair on which nothing is sent has no goroutine, buffer or pipe.
type Epoll struct {
	cfg   Config
	loops []*Loop
	next  atomic.Uint32
	wg    sync.WaitGroup
}

// New starts a relay, an [Epoll].
func New(cfg Config) (Relay, error) {
	r := &Epoll{cfg: cfg}
	for range Loops() {
		l, err := newLoop(cfg)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.loops = append(r.loops, l)
		r.wg.Go(l.run)
	}
	return r, nil
}

// Loops are the relay's event loops; don't change the slice.
func (r *Epoll) Loops() []*Loop { return r.loops }

// Pass is [Relay.Pass].
func (r *Epoll) Pass(client, backend *net.TCPConn, owner Owner) {
	c, err1 := takeOver(client)
	b, err2 := takeOver(backend)
	if err1 == nil && err2 == nil {
		// The kernel also ends a connection whose receiver takes nothing: see tcp(7) about
		// TCP_USER_TIMEOUT, which holds for a window that stays closed as well.
		setMillis(c, unix.TCP_USER_TIMEOUT, r.cfg.Stall)
		setMillis(b, unix.TCP_USER_TIMEOUT, r.cfg.Stall)
		loop := r.loops[int(r.next.Add(1))%len(r.loops)]
		err1 = loop.add(&pair{client: side{fd: c}, backend: side{fd: b}, owner: owner, traffic: owner.Traffic()})
	}
	err := cmp.Or(err1, err2)
	if err == nil {
		return
	}
	if !errors.Is(err, errClosed) {
		r.cfg.Failed(err)
	}
	ResetFD(c)
	ResetFD(b)
	owner.Closed()
}

// End is [Relay.End].
func (r *Epoll) End(over func(Owner) bool) {
	for _, l := range r.loops {
		l.Post(func() { l.end(over) })
	}
}

// Close is [Relay.Close].
func (r *Epoll) Close() {
	for _, l := range r.loops {
		l.Post(func() { l.over = true })
	}
	r.wg.Wait()
}
