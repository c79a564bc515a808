package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
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
	client, backend *net.TCPConn
	owner           Owner
	traffic         *Traffic
	broken          sync.Once
}

// NewCopy makes a Copy. It never fails; its results are those of [New].
func NewCopy(cfg Config) (Relay, error) {
	return &Copy{cfg: cfg, pairs: make(map[*copiedPair]struct{})}, nil
}

// Pass is [Relay.Pass].
func (r *Copy) Pass(client, backend *net.TCPConn, owner Owner) {
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

// passOn copies one direction. Each write has a deadline of its own. So a slow receiver may go
// on, and passOn ends one that takes nothing. It returns false if the source has sent nothing by
// its read deadline; the first bytes end that deadline.
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

// reset resets both sides, which ends both directions.
func (p *copiedPair) reset() {
	p.broken.Do(func() {
		Reset(p.client)
		Reset(p.backend)
	})
}
