// Package mux carries many streams over one connection.
//
// One side opens streams, the other accepts them. Each stream has a window of its own, so one that
// nobody reads stops its own sender and no other. What a stream may hold is bound before its sender
// may send it: [FirstWindow] for each stream, and a [Budget] for all that move much. The other side
// is not trusted: a session never holds more than that.
//
// There are libraries for this, and none fits. hashicorp/yamux can't reset a stream, starts a
// goroutine for each ping and writes each frame in two parts; libp2p's fork of it fixes a window of
// 256 KiB for each stream, and frames of one byte take forty times that. HTTP/2 in Go can't
// half-close from the server's side, and one window for the connection lets streams stop each other.
package mux

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// The kinds of frames. Each frame has a header of eight bytes: the stream (4), the kind (1) and a
// number (3), which is the length of the payload where there is one.
const (
	kindOpen   = iota + 1 // a new stream
	kindData              // with a payload
	kindCredit            // the number is how many bytes more the other side may send
	kindFin               // the sender sends no more
	kindReset             // the stream is over
	kindPing              // to be answered by a pong
	kindPong
	kindNote // with a payload, for the session
)

const (
	headerSize = 8
	maxNumber  = 1<<24 - 1
	maxData    = 16<<10 - headerSize // of a payload, so that a frame fits into one record of TLS
	maxOut     = 64 << 10            // bytes that wait to be written, before a stream that writes waits
	mostOut    = 1 << 20             // the same, with answers to frames of the other side; more ends the session
	keptOut    = 32 << 10            // of a buffer that is kept while nothing is written
)

// FirstWindow is how many bytes of each stream may wait to be read.
const FirstWindow = 16 << 10

// maxWindow is the same for a stream that moves much, while the budget lasts.
const maxWindow = 1 << 20

// Budget is how many bytes the streams of many sessions may hold beyond their first window.
type Budget struct{ free atomic.Int64 }

// NewBudget makes a budget.
func NewBudget(bytes int64) *Budget {
	b := &Budget{}
	b.free.Store(bytes)
	return b
}

func (b *Budget) take(n int64) bool {
	if b == nil || b.free.Add(-n) < 0 {
		b.give(n)
		return false
	}
	return true
}

func (b *Budget) give(n int64) {
	if b != nil {
		b.free.Add(n)
	}
}

// Config is what a session needs. The functions are called by the goroutine that reads, which
// waits for them.
type Config struct {
	Accept  func(*Stream) // gets the streams that the other side opens; nil: it may open none
	Note    func([]byte)  // gets the other side's notes, which are valid until it returns
	Budget  *Budget       // nil: no window grows
	Streams int           // that may be open at once
	// Silence is how long the other side may say nothing before it is pinged. After three pings
	// without any answer the session ends.
	Silence time.Duration
	// Stall is how long the connection may take no byte of what is to be sent.
	Stall time.Duration
}

const maxMissed = 3

// Session is one connection with its streams.
type Session struct {
	cfg  Config
	conn net.Conn

	mu      sync.Mutex
	streams map[uint32]*Stream
	last    uint32 // that was opened, by either side
	err     error  // why it has ended
	done    chan struct{}

	out      sync.Mutex // guards what follows
	room     sync.Cond  // there is room in pending, or the session has ended
	pending  []byte     // to be written
	spare    []byte
	flushing bool // somebody writes
	ended    bool
	ponged   bool // a pong is in pending
}

// The errors of sessions and streams.
var (
	ErrReset   = errors.New("the stream was reset")
	ErrTooMany = errors.New("too many streams are open")
	errSilent  = errors.New("nothing was heard from the other end")
	errWrong   = errors.New("the other end broke the protocol")
	errGone    = errors.New("the other end has closed the connection")
	errClosed  = errors.New("this end has closed the connection")
)

// New makes a session over a connection, which it closes at its end. Run must be called.
func New(conn net.Conn, cfg Config) *Session {
	s := &Session{cfg: cfg, conn: conn, streams: map[uint32]*Stream{}, done: make(chan struct{})}
	s.room.L = &s.out
	return s
}

// Run serves the session until it ends, and returns why.
func (s *Session) Run() error {
	err := s.receive()
	if errors.Is(err, io.EOF) {
		err = errGone
	}
	s.end(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Close ends the session with all its streams.
func (s *Session) Close() { s.end(errClosed) }

// Streams is how many streams are open.
func (s *Session) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Open opens a stream.
func (s *Session) Open() (*Stream, error) {
	s.mu.Lock()
	switch {
	case s.err != nil:
		defer s.mu.Unlock()
		return nil, s.err
	case len(s.streams) >= s.cfg.Streams || s.last == 1<<32-1:
		s.mu.Unlock()
		return nil, ErrTooMany
	}
	s.last++
	st := newStream(s, s.last)
	s.streams[st.id] = st
	// Within the lock, since streams are announced in order.
	s.answer(kindOpen, st.id, 0)
	s.mu.Unlock()
	return st, nil
}

// SendNote sends a note to the other side.
func (s *Session) SendNote(note []byte) error { return s.send(kindNote, 0, note) }

func (s *Session) end(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	all := s.streams
	s.streams = nil
	s.mu.Unlock()
	s.out.Lock()
	s.ended, s.pending = true, nil
	s.room.Broadcast()
	s.out.Unlock()
	for _, st := range all {
		st.fail(fmt.Errorf("the connection that carried the stream has ended: %w", err))
	}
	s.conn.Close() // last, since TLS says goodbye first, and that may wait
	close(s.done)
}

// forget takes a stream out.
func (s *Session) forget(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.id] == st {
		delete(s.streams, st.id)
	}
}

func (s *Session) stream(id uint32) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[id]
}

// receive reads frames until the connection ends. It never waits for a stream's reader, nor for room
// to write.
func (s *Session) receive() error {
	in := bufio.NewReaderSize(s.conn, maxData+headerSize)
	for {
		header, err := s.peek(in, headerSize)
		if err != nil {
			return err
		}
		id, kind, n := binary.BigEndian.Uint32(header), header[4], int(header[5])<<16|int(header[6])<<8|int(header[7])
		in.Discard(headerSize)
		var payload []byte
		if kind == kindData || kind == kindNote {
			if n > maxData {
				return errWrong
			}
			if payload, err = s.peek(in, n); err != nil {
				return err
			}
		}
		if err := s.take(kind, id, n, payload); err != nil {
			return err
		}
		in.Discard(len(payload))
	}
}

// peek waits for the next n bytes.
func (s *Session) peek(in *bufio.Reader, n int) ([]byte, error) {
	for missed, had := 0, in.Buffered(); ; {
		if in.Buffered() < n && s.cfg.Silence > 0 {
			_ = s.conn.SetReadDeadline(time.Now().Add(s.cfg.Silence))
		}
		b, err := in.Peek(n)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return b, err
		}
		if in.Buffered() > had {
			missed, had = 0, in.Buffered()
			continue
		}
		if missed++; missed > maxMissed {
			return nil, errSilent
		}
		s.answer(kindPing, 0, 0)
	}
}

// take processes a frame.
func (s *Session) take(kind byte, id uint32, n int, payload []byte) error {
	switch kind {
	case kindOpen:
		return s.accept(id)
	case kindPing:
		s.answer(kindPong, 0, 0)
		return nil
	case kindPong:
		return nil
	case kindNote:
		if s.cfg.Note != nil {
			s.cfg.Note(payload)
		}
		return nil
	}
	st := s.stream(id)
	switch kind {
	case kindData:
		if st == nil { // closed here already
			s.answer(kindReset, id, 0)
			return nil
		}
		return st.receive(payload)
	case kindCredit:
		if st != nil {
			return st.credit(n)
		}
	case kindFin:
		if st != nil {
			st.finish()
		}
	case kindReset:
		if st != nil {
			s.forget(st)
			st.fail(ErrReset)
		}
	default:
		return errWrong
	}
	return nil
}

// accept takes a new stream in, or resets it.
func (s *Session) accept(id uint32) error {
	s.mu.Lock()
	if s.cfg.Accept == nil || id <= s.last {
		s.mu.Unlock()
		return errWrong
	}
	s.last = id
	if s.err != nil || len(s.streams) >= s.cfg.Streams {
		s.mu.Unlock()
		s.answer(kindReset, id, 0)
		return nil
	}
	st := newStream(s, id)
	s.streams[id] = st
	s.mu.Unlock()
	s.cfg.Accept(st)
	return nil
}

func appendHeader(to []byte, kind byte, id uint32, n int) []byte {
	to = binary.BigEndian.AppendUint32(to, id)
	return append(to, kind, byte(n>>16), byte(n>>8), byte(n))
}

// send sends a frame with a payload once there is room, and writes it out unless somebody else does.
func (s *Session) send(kind byte, id uint32, payload []byte) error {
	s.out.Lock()
	defer s.out.Unlock()
	for len(s.pending) >= maxOut && !s.ended {
		s.room.Wait()
	}
	if s.ended {
		return net.ErrClosed
	}
	s.pending = append(appendHeader(s.pending, kind, id, len(payload)), payload...)
	if !s.flushing {
		s.flushing = true
		s.flush()
	}
	return nil
}

// answer sends a frame without a payload, and waits for nothing.
func (s *Session) answer(kind byte, id uint32, n int) {
	s.out.Lock()
	defer s.out.Unlock()
	if s.ended || kind == kindPong && s.ponged {
		return
	}
	if len(s.pending) >= mostOut { // the other side asks, and does not read the answers
		go s.end(errWrong)
		return
	}
	s.ponged = s.ponged || kind == kindPong
	s.pending = appendHeader(s.pending, kind, id, n)
	if !s.flushing {
		s.flushing = true
		go func() {
			s.out.Lock()
			defer s.out.Unlock()
			s.flush()
		}()
	}
}

// flush writes what is pending. The caller holds the lock, which is free while bytes are written.
func (s *Session) flush() {
	for len(s.pending) > 0 && !s.ended {
		all := s.pending
		s.pending, s.spare, s.ponged = s.spare[:0], nil, false
		s.out.Unlock()
		if s.cfg.Stall > 0 {
			_ = s.conn.SetWriteDeadline(time.Now().Add(s.cfg.Stall))
		}
		_, err := s.conn.Write(all)
		if err != nil {
			s.end(err)
		}
		s.out.Lock()
		s.spare = all[:0]
		s.room.Broadcast()
	}
	if cap(s.spare) > keptOut {
		s.spare = nil
	}
	if s.pending == nil || cap(s.pending) > keptOut {
		s.pending, s.spare = s.spare, nil
	}
	s.flushing = false
}
