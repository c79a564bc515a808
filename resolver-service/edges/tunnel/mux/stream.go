package mux

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Stream is one of a session's streams, a [net.Conn] that can be closed in one direction. One
// goroutine may read and one may write at a time; any may close it.
type Stream struct {
	session *Session
	id      uint32

	mu       sync.Mutex
	received []*chunk
	window   int       // bytes that the other side may send beyond what was read
	left     int       // of the window, what it has not used
	read     int       // bytes that were read, and not given back to the window
	granted  time.Time // when they last were
	credits  int       // bytes that this side may send
	finished bool      // the other side sends no more
	sent     bool      // this side sends no more
	err      error     // why both directions have ended

	readable, writable chan struct{} // one place each: look again
	reads, writes      deadline
}

// growWithin is how quickly half of a window has to be read for it to grow.
const growWithin = 100 * time.Millisecond

// chunk is a part of what waits to be read. A stream without such bytes has none.
type chunk struct {
	from, to int
	bytes    [FirstWindow]byte
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newStream(s *Session, id uint32) *Stream {
	return &Stream{
		session: s, id: id, window: FirstWindow, left: FirstWindow, credits: FirstWindow,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1), reads: newDeadline(), writes: newDeadline(),
	}
}

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// receive takes in bytes of the other side.
func (st *Stream) receive(payload []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(payload) > st.left {
		return errWrong
	}
	if st.err != nil || st.finished { // a write there was overtaken by the end of the stream
		return nil
	}
	st.left -= len(payload)
	for len(payload) > 0 {
		n := len(st.received)
		if n == 0 || st.received[n-1].to == len(chunk{}.bytes) {
			c := chunks.Get().(*chunk)
			c.from, c.to = 0, 0
			st.received = append(st.received, c)
			n++
		}
		last := st.received[n-1]
		copied := copy(last.bytes[last.to:], payload)
		last.to += copied
		payload = payload[copied:]
	}
	wake(st.readable)
	return nil
}

// credit lets this side send n bytes more.
func (st *Stream) credit(n int) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.credits += n; st.credits > maxNumber {
		return errWrong
	}
	wake(st.writable)
	return nil
}

// finish notes that the other side sends no more.
func (st *Stream) finish() {
	st.mu.Lock()
	st.finished = true
	over := st.sent
	wake(st.readable)
	st.mu.Unlock()
	if over {
		st.session.forget(st)
	}
}

// fail ends both directions.
func (st *Stream) fail(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil && !(st.finished && st.sent) {
		st.err, st.received = err, nil
	}
	st.giveBack()
	wake(st.readable)
	wake(st.writable)
}

// giveBack returns to the budget what the stream has had of it.
func (st *Stream) giveBack() {
	if more := st.window - FirstWindow; more > 0 {
		st.session.cfg.Budget.give(int64(more))
		st.window = FirstWindow
	}
}

// Read reads what the other side has sent.
func (st *Stream) Read(p []byte) (int, error) {
	if err := st.AwaitRead(); err != nil {
		return 0, err
	}
	st.mu.Lock()
	n := 0
	for n < len(p) && len(st.received) > 0 {
		c := st.received[0]
		copied := copy(p[n:], c.bytes[c.from:c.to])
		n += copied
		if c.from += copied; c.from == c.to {
			chunks.Put(c)
			st.received[0] = nil
			st.received = st.received[1:]
		}
	}
	if len(st.received) == 0 {
		st.received = nil
	}
	grant := st.grant(n)
	st.mu.Unlock()
	if grant > 0 {
		st.session.answer(kindCredit, st.id, grant)
	}
	return n, nil
}

// grant is how many bytes more the other side may send after n were read.
func (st *Stream) grant(n int) (grant int) {
	if st.read += n; st.read < st.window/2 || st.finished || st.err != nil {
		return 0
	}
	grant, st.read = st.read, 0
	now := time.Now()
	if now.Sub(st.granted) < growWithin && st.window < maxWindow && st.session.cfg.Budget.take(int64(st.window)) {
		grant += st.window
		st.window *= 2
	}
	st.granted = now
	st.left += grant
	return grant
}

// AwaitRead waits until Read has bytes, or an error, which it returns.
func (st *Stream) AwaitRead() error {
	for {
		st.mu.Lock()
		waiting, err := len(st.received) > 0, st.err
		if err == nil && st.finished && !waiting {
			err = io.EOF
			st.giveBack()
		}
		st.mu.Unlock()
		if err != nil {
			return err
		}
		if st.reads.over() {
			return os.ErrDeadlineExceeded
		}
		if waiting {
			return nil
		}
		select {
		case <-st.readable:
		case <-st.reads.done():
		}
	}
}

// Write sends bytes to the other side, as fast as that reads.
func (st *Stream) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		var may int
		if may, err = st.maySend(len(p)); err == nil {
			if err = st.session.send(kindData, st.id, p[:may]); err == nil {
				n, p = n+may, p[may:]
			}
		}
	}
	return n, err
}

// maySend waits until some of n bytes may be sent, and says how many.
func (st *Stream) maySend(n int) (int, error) {
	for {
		st.mu.Lock()
		may, err := min(n, st.credits, maxData), st.err
		if st.sent && err == nil {
			err = net.ErrClosed
		}
		if err == nil {
			st.credits -= may
		}
		st.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case st.writes.over():
			return 0, os.ErrDeadlineExceeded
		case may > 0:
			return may, nil
		}
		select {
		case <-st.writable:
		case <-st.writes.done():
		}
	}
}

// CloseWrite tells the other side that no more is sent.
func (st *Stream) CloseWrite() error {
	st.mu.Lock()
	if st.sent || st.err != nil {
		defer st.mu.Unlock()
		return st.err
	}
	st.sent = true
	over := st.finished
	wake(st.writable)
	st.mu.Unlock()
	st.session.answer(kindFin, st.id, 0)
	if over {
		st.session.forget(st)
	}
	return nil
}

// Close closes both directions. Bytes that were written arrive; the stream is reset if the other
// side sends more.
func (st *Stream) Close() error {
	_ = st.CloseWrite()
	st.session.forget(st)
	st.fail(net.ErrClosed)
	return nil
}

// Reset ends both directions, and tells the other side.
func (st *Stream) Reset() {
	st.mu.Lock()
	over := st.err != nil || st.finished && st.sent
	st.mu.Unlock()
	if !over {
		st.session.answer(kindReset, st.id, 0)
	}
	st.session.forget(st)
	st.fail(net.ErrClosed)
}

// LocalAddr is that of the session's connection.
func (st *Stream) LocalAddr() net.Addr { return st.session.conn.LocalAddr() }

// RemoteAddr is that of the session's connection.
func (st *Stream) RemoteAddr() net.Addr { return st.session.conn.RemoteAddr() }

// SetDeadline sets both deadlines.
func (st *Stream) SetDeadline(t time.Time) error {
	st.reads.set(t)
	st.writes.set(t)
	return nil
}

// SetReadDeadline sets the deadline of reads.
func (st *Stream) SetReadDeadline(t time.Time) error {
	st.reads.set(t)
	return nil
}

// SetWriteDeadline sets the deadline of writes.
func (st *Stream) SetWriteDeadline(t time.Time) error {
	st.writes.set(t)
	return nil
}

// deadline is a moment that may be moved while somebody waits for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{} // closed once it is over
}

func newDeadline() deadline { return deadline{past: make(chan struct{})} }

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.past // it closes it now
	}
	d.timer = nil
	select {
	case <-d.past:
		d.past = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	if in := time.Until(t); in > 0 {
		past := d.past
		d.timer = time.AfterFunc(in, func() { close(past) })
		return
	}
	close(d.past)
}

func (d *deadline) done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}

func (d *deadline) over() bool {
	select {
	case <-d.done():
		return true
	default:
		return false
	}
}
