package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Copy is the relay that works everywhere. Each pair costs it two goroutines and two buffers.
type Copy struct {
	cfg Config

	mu     sync.Mutex
	pairs  map[*copiedPair]struct{}
	closed bool
	wg     sync.WaitGroup
}

// copiedPair is one client and its backend.
type copiedPair struct {
	client, backend Conn
	owner           Owner
	traffic         *Traffic
	broken          sync.Once
}

// NewCopy makes a Copy. It never fails; its results are those of [New].
func NewCopy(cfg Config) (Relay, error) { return NewStreams(cfg), nil }

// NewStreams makes a Copy, for connections that are not TCP's.
func NewStreams(cfg Config) *Copy {
	return &Copy{cfg: cfg, pairs: make(map[*copiedPair]struct{})}
}

// Pass is [Relay.Pass].
func (r *Copy) Pass(client, backend *net.TCPConn, owner Owner) { r.PassStreams(client, backend, owner) }

// PassStreams is [Relay.Pass] for any kinds of connections.
func (r *Copy) PassStreams(client, backend Conn, owner Owner) {
	p := &copiedPair{client: client, backend: backend, owner: owner, traffic: owner.Traffic()}
	if !r.start(p) {
		p.reset()
		owner.Closed()
	}
}

// start runs a pair, unless the relay is closed: nobody would wait for it any more.
func (r *Copy) start(p *copiedPair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.pairs[p] = struct{}{}
	r.wg.Go(func() { r.run(p) })
	return true
}

func (r *Copy) run(p *copiedPair) {
	var answers sync.WaitGroup
	if r.cfg.Answer > 0 {
		p.backend.SetReadDeadline(time.Now().Add(r.cfg.Answer))
	}
	answers.Go(func() {
		if !p.passOn(p.client, p.backend, r.cfg.Stall, &p.traffic.ToClient) {
			p.client.Write(p.owner.Unanswered())
			p.broken.Do(func() {
				p.client.Close() // no reset, which could overtake what was just written
				Reset(p.backend)
			})
		}
	})
	p.passOn(p.backend, p.client, r.cfg.Stall, &p.traffic.ToBackend)
	answers.Wait()
	p.client.Close()
	p.backend.Close()
	r.mu.Lock()
	delete(r.pairs, p)
	r.mu.Unlock()
	p.owner.Closed()
}

// End is [Relay.End].
func (r *Copy) End(over func(Owner) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		if over(p.owner) {
			p.reset()
		}
	}
}

// Close is [Relay.Close].
func (r *Copy) Close() {
	r.mu.Lock()
	r.closed = true
	for p := range r.pairs {
		p.reset()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

const copyBuffer = 32 << 10

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }}

// passOn copies one direction. Each write has a deadline, of half a stall at least. So a slow
// receiver may go on, and passOn ends one that takes nothing. It returns false if the source has
// sent nothing by its read deadline; the first bytes end that deadline.
func (p *copiedPair) passOn(dst, src Conn, stall time.Duration, count *atomic.Uint64) bool {
	next := reader(src)
	var until time.Time
	for first := true; ; first = false {
		buf, n, err := next()
		if first && errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if n > 0 {
			if first {
				src.SetReadDeadline(time.Time{})
			}
			if now := time.Now(); until.Before(now.Add(stall / 2)) {
				until = now.Add(stall)
				dst.SetWriteDeadline(until)
			}
			_, err := dst.Write((*buf)[:n])
			copyBuffers.Put(buf)
			if err != nil {
				p.reset()
				return true
			}
			count.Add(uint64(n))
		}
		if err == io.EOF {
			dst.CloseWrite()
			return true
		}
		if err != nil {
			p.reset()
			return true
		}
	}
}

// reader reads from a connection into buffers of the pool, and takes one only once there is
// something to read: most connections sleep.
func reader(src Conn) func() (buf *[]byte, n int, err error) {
	if stream, ok := src.(interface{ AwaitRead() error }); ok {
		return func() (*[]byte, int, error) {
			if err := stream.AwaitRead(); err != nil {
				return nil, 0, err
			}
			return into(src.Read)
		}
	}
	tcp, ok := src.(syscall.Conn)
	if !ok {
		return func() (*[]byte, int, error) { return into(src.Read) }
	}
	raw, failed := tcp.SyscallConn()
	return func() (buf *[]byte, n int, err error) {
		if failed != nil {
			return nil, 0, failed
		}
		closed := raw.Read(func(fd uintptr) bool {
			for {
				buf, n, err = into(func(b []byte) (int, error) { return syscall.Read(int(fd), b) })
				if err != syscall.EINTR {
					return err != syscall.EAGAIN
				}
			}
		})
		switch {
		case closed != nil:
			return nil, 0, closed
		case n == 0 && err == nil:
			err = io.EOF
		}
		return buf, n, err
	}
}

// into reads into a buffer of the pool, which goes back unless it has bytes.
func into(read func([]byte) (int, error)) (*[]byte, int, error) {
	buf := copyBuffers.Get().(*[]byte)
	n, err := read(*buf)
	if n <= 0 {
		copyBuffers.Put(buf)
		return nil, 0, err
	}
	return buf, n, err
}

// reset resets both sides, which ends both directions.
func (p *copiedPair) reset() {
	p.broken.Do(func() {
		Reset(p.client)
		Reset(p.backend)
	})
}
