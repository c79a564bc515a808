package stream

import (
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// chunkBytes is how much of a message must leave for the client to count as reading.
const chunkBytes = 32 << 10

// inFlight tracks the messages of one stream that gRPC has and that have not left yet. gRPC takes
// a whole message at once, however long, and keeps it until flow control lets it through. So the
// return of SendMsg proves nothing.
type inFlight struct {
	timeout time.Duration
	stalled func() // called when a client has read nothing for timeout

	mu         sync.Mutex
	deliveries map[*delivery]struct{}
	waiting    int // deliveries, and calls of SendMsg
	timer      *time.Timer
	closed     bool
}

// delivery is one message on its way to one client, as it is passed to SendMsg.
type delivery struct {
	of   *inFlight
	msg  *prepared
	left int    // bytes that have not left; guarded by of.mu
	gone func() // called once all of it has left; may be nil
}

// send sends a message, and takes over the caller's hold on it. gone is called once it has left, and
// may be nil.
func (b *inFlight) send(msg *prepared, sendMsg func(any) error, gone func()) error {
	d := &delivery{of: b, msg: msg, gone: gone}
	b.add(d)
	err := sendMsg(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteProgress()
	if d.left == 0 {
		b.finish(d, err == nil)
	}
	return err
}

func (b *inFlight) add(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deliveries == nil {
		b.deliveries = map[*delivery]struct{}{}
	}
	b.deliveries[d] = struct{}{}
	b.startTimer()
}

// idle tells whether all that was sent has left.
func (b *inFlight) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting == 0
}

// startTimer counts something that waits; mu is held.
func (b *inFlight) startTimer() {
	if b.waiting++; b.waiting > 1 || b.closed {
		return
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(b.timeout, b.stalled)
	} else {
		b.timer.Reset(b.timeout)
	}
}

// noteProgress records that something has left; mu is held.
func (b *inFlight) noteProgress() {
	if b.waiting--; b.closed {
		return
	}
	b.timer.Stop()
	if b.waiting > 0 {
		b.timer.Reset(b.timeout)
	}
}

// finish releases a message, which has left or never will; mu is held.
func (b *inFlight) finish(d *delivery, left bool) {
	if _, ok := b.deliveries[d]; ok {
		delete(b.deliveries, d)
		d.msg.release()
		if left && d.gone != nil {
			d.gone()
		}
	}
}

// close releases all messages, since the stream has ended.
func (b *inFlight) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	for d := range b.deliveries {
		b.finish(d, false)
	}
}

// Buffers returns the message in pieces. gRPC reports when each has left.
func (d *delivery) Buffers() mem.BufferSlice {
	text := d.msg.encoded
	pieces := make(mem.BufferSlice, 0, len(text)/chunkBytes+1)
	followed := 0
	for len(text) > 0 {
		n := min(len(text), chunkBytes)
		piece := text[:n:n]
		text = text[n:]
		if !mem.IsBelowBufferPoolingThreshold(n) {
			followed += n
		}
		pieces = append(pieces, mem.NewBuffer(&piece, d))
	}
	if followed > 0 {
		d.of.mu.Lock()
		defer d.of.mu.Unlock()
		d.left = followed
		d.of.startTimer()
	}
	return pieces
}

// Get is never called: a delivery is only the pool of its own pieces.
func (d *delivery) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put is called by gRPC when a piece has left, or never will.
func (d *delivery) Put(piece *[]byte) {
	b := d.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.left -= len(*piece); d.left == 0 {
		b.noteProgress()
		b.finish(d, true)
	} else if !b.closed {
		b.timer.Reset(b.timeout)
	}
}
