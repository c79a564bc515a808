package main

import (
	"net"
	"sync/atomic"
)

// traffic counts what goes through the connections of one peer, as its sockets have it:
// TLS included, TCP and IP not.
type traffic struct{ in, out counter }

// counter counts one direction.
type counter struct{ bytes, records atomic.Int64 }

// count is what was counted.
type count struct{ Bytes, Records int64 }

func (c *counter) load() count { return count{c.bytes.Load(), c.records.Load()} }

func (c count) less(o count) count { return count{c.Bytes - o.Bytes, c.Records - o.Records} }

func (c count) plus(o count) count { return count{c.Bytes + o.Bytes, c.Records + o.Records} }

// counted is a connection whose traffic is counted.
type counted struct {
	net.Conn
	traffic *traffic
	reads   records // of whoever reads, and there is one at a time
	writes  records
	closed  func(*counted)
}

// Read reads, and counts.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.reads.note(&c.traffic.in, b[:n])
	return n, err
}

// Write writes, and counts.
func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.writes.note(&c.traffic.out, b[:n])
	return n, err
}

// Close closes it.
func (c *counted) Close() error {
	c.closed(c)
	return c.Conn.Close()
}

// records finds where TLS records begin (RFC 8446, 5.1): a header of five bytes, of which
// the last two have the length of what follows.
type records struct {
	header [5]byte
	have   int // bytes of the header
	left   int // bytes of the record after it
}

func (r *records) note(c *counter, b []byte) {
	c.bytes.Add(int64(len(b)))
	for len(b) > 0 {
		if r.left > 0 {
			n := min(r.left, len(b))
			r.left, b = r.left-n, b[n:]
			continue
		}
		n := copy(r.header[r.have:], b)
		r.have, b = r.have+n, b[n:]
		if r.have == len(r.header) {
			r.have, r.left = 0, int(r.header[3])<<8|int(r.header[4])
			c.records.Add(1)
		}
	}
}
