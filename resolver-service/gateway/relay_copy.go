package gateway

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// copyRelay is the relay that works everywhere: two goroutines and two buffers for
// each pair.
type copyRelay struct {
	cfg relayConfig

	mu     sync.Mutex
	pairs  map[*copiedPair]struct{}
	closed bool
	wg     sync.WaitGroup
}

// copiedPair is one client and its backend.
type copiedPair struct {
	client, backend *net.TCPConn
	of              *admitted
	broken          sync.Once
}

func newCopyRelay(cfg relayConfig) (relay, error) {
	return &copyRelay{cfg: cfg, pairs: make(map[*copiedPair]struct{})}, nil
}

func (r *copyRelay) pass(client, backend *net.TCPConn, of *admitted) {
	p := &copiedPair{client: client, backend: backend, of: of}
	if !r.start(p) {
		p.breakOff()
		r.cfg.ended(of)
	}
}

// start runs a pair, unless the relay is closed: nobody would wait for it any more.
func (r *copyRelay) start(p *copiedPair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.pairs[p] = struct{}{}
	r.wg.Go(func() { r.run(p) })
	return true
}

func (r *copyRelay) run(p *copiedPair) {
	var answers sync.WaitGroup
	if r.cfg.answer > 0 {
		p.backend.SetReadDeadline(time.Now().Add(r.cfg.answer))
	}
	answers.Go(func() {
		if !p.passOn(p.client, p.backend, r.cfg.stall, &r.cfg.traffic.toClient) {
			r.cfg.silent(p.of)
			p.client.Write(p.of.noAnswer())
			p.broken.Do(func() {
				p.client.Close() // no reset, which could overtake what was just written
				reset(p.backend)
			})
		}
	})
	p.passOn(p.backend, p.client, r.cfg.stall, &r.cfg.traffic.toBackend)
	answers.Wait()
	p.client.Close()
	p.backend.Close()
	r.mu.Lock()
	delete(r.pairs, p)
	r.mu.Unlock()
	r.cfg.ended(p.of)
}

func (r *copyRelay) close() {
	r.mu.Lock()
	r.closed = true
	for p := range r.pairs {
		p.breakOff()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

const copyBuffer = 32 << 10

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }}

// passOn copies one direction. Each write has a deadline of its own, so a receiver
// that takes its time is let be and one that takes nothing is not. It is false where the
// source has sent nothing by its deadline; once it has, there is none.
func (p *copiedPair) passOn(dst, src *net.TCPConn, stall time.Duration, count *atomic.Uint64) bool {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for first := true; ; first = false {
		n, err := src.Read(*buf)
		if first && errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if n > 0 {
			if first {
				src.SetReadDeadline(time.Time{})
			}
			dst.SetWriteDeadline(time.Now().Add(stall))
			if _, err := dst.Write((*buf)[:n]); err != nil {
				p.breakOff()
				return true
			}
			count.Add(uint64(n))
		}
		if err == io.EOF {
			dst.CloseWrite()
			return true
		}
		if err != nil {
			p.breakOff()
			return true
		}
	}
}

// breakOff resets both sides, which ends both directions.
func (p *copiedPair) breakOff() {
	p.broken.Do(func() {
		reset(p.client)
		reset(p.backend)
	})
}
