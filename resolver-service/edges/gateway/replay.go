package gateway

import (
	"errors"
	"net"
	"sync"
)

// maxHello is how much of a TLS connection is read, at most, before its name is known:
// ten times the ClientHello of a Go program, and four times one with the largest key share
// in use. What is half-open costs this at most, and the kernel has room for it.
const maxHello = 16 << 10

// maxPrelude is the same for HTTP/2 without TLS, where a client may send up to 64 KiB
// before it is told that it may send more.
const maxPrelude = 64<<10 + 8<<10

var errTooLong = errors.New("too many bytes that do not name an app")

// replay is a connection whose bytes are kept as they are read, so that a backend
// can be given every one of them.
type replay struct {
	net.Conn
	buf    []byte // all that was read from Conn
	limit  int    // of buf
	off    int    // how much of buf Read has given out
	err    error  // that ended the reading of Conn
	pooled *[]byte
}

// firstRead is room for the ClientHello of a Go program, 1.5 KiB, in one read.
const firstRead = 4096

var firstReads = sync.Pool{New: func() any { b := make([]byte, firstRead); return &b }}

func newReplay(conn net.Conn) *replay {
	pooled := firstReads.Get().(*[]byte)
	return &replay{Conn: conn, buf: (*pooled)[:0], limit: maxHello, pooled: pooled}
}

// release gives the buffer back; the bytes are not valid any more.
func (r *replay) release() {
	firstReads.Put(r.pooled)
	r.pooled, r.buf = nil, nil
}

// Read gives out the bytes that were read already, or else the next ones.
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

// fill reads once from the connection.
func (r *replay) fill() error {
	if r.err != nil {
		return r.err
	}
	if len(r.buf) >= r.limit {
		r.err = errTooLong
		return r.err
	}
	if len(r.buf) == cap(r.buf) {
		grown := make([]byte, len(r.buf), min(4*cap(r.buf), r.limit))
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
