package gateway

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// maxGreeting is how much of a connection is read, at most, before its name is
// known: a ClientHello of 64 KiB, which is the longest that crypto/tls takes, and
// the headers of the records that it may be spread over.
const maxGreeting = 64<<10 + 8<<10

var errTooLong = fmt.Errorf("nothing that names an app within %d KiB", maxGreeting>>10)

// replay is a connection whose bytes are kept as they are read, so that a backend
// can be given every one of them. What is written to it is kept as well, not sent.
type replay struct {
	net.Conn
	buf        []byte // all that was read from Conn
	off        int    // how much of buf Read has given out
	err        error  // that ended the reading of Conn
	answer     []byte // what crypto/tls would have sent
	serverName string
	pooled     *[]byte
}

// firstRead is room for the ClientHello of a Go program, 1.5 KiB, in one read.
const firstRead = 4096

var firstReads = sync.Pool{New: func() any { b := make([]byte, firstRead); return &b }}

func newReplay(conn net.Conn) *replay {
	pooled := firstReads.Get().(*[]byte)
	return &replay{Conn: conn, buf: (*pooled)[:0], pooled: pooled}
}

// release gives the buffer back; the bytes are not valid any more.
func (r *replay) release() {
	firstReads.Put(r.pooled)
	r.pooled, r.buf = nil, nil
}

// Read gives out what was read already, or else what comes next.
func (r *replay) Read(p []byte) (int, error) {
	if r.off == len(r.buf) {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buf[r.off:])
	r.off += n
	return n, nil
}

// Write keeps the answer of crypto/tls to a broken ClientHello: an alert.
func (r *replay) Write(p []byte) (int, error) {
	r.answer = append(r.answer, p...)
	return len(p), nil
}

// peek returns the first n bytes that Read has yet to give out.
func (r *replay) peek(n int) ([]byte, error) {
	for len(r.buf)-r.off < n {
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
	return r.buf[r.off : r.off+n], nil
}

// fill reads once from the connection.
func (r *replay) fill() error {
	if r.err != nil {
		return r.err
	}
	if len(r.buf) >= maxGreeting {
		r.err = errTooLong
		return r.err
	}
	if len(r.buf) == cap(r.buf) {
		grown := make([]byte, len(r.buf), min(4*cap(r.buf), maxGreeting))
		copy(grown, r.buf)
		r.buf = grown
	}
	n, err := r.Conn.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = errors.New("read of no bytes")
	}
	r.err = err
	return err
}
