package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// results are what was measured of a candidate, one value for each round.
type results struct {
	connection measure.Samples // CPU µs of one
	bare       measure.Samples // CPU µs of one without an exchange
	request    measure.Samples // CPU µs of one
	gib        measure.Samples // CPU s
	idleKiB    float64
	idleFiles  float64
	idleCount  int
}

// How many clients there are at once.
const (
	connecting = 4
	requesting = 8
	streaming  = 4
)

// measure does one round.
func (c *candidate) measure(_ context.Context, l load) error {
	for _, part := range []struct {
		to *measure.Samples
		n  float64 // CPU seconds are divided by it; 0 leaves the part out
		do func() error
	}{
		{&c.connection, float64(l.connections) / 1e6, func() error { return c.connect(l.connections) }},
		{&c.bare, float64(l.connections) / 1e6, func() error { return c.touch(l.connections) }},
		{&c.request, float64(l.requests) / 1e6, func() error { return c.ask(l.requests) }},
		{&c.gib, float64(l.bytes) / (1 << 30), func() error { return c.stream(int(l.bytes)) }},
	} {
		if part.n == 0 {
			continue
		}
		used, err := measure.Spent(c.PID(), part.do)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		*part.to = append(*part.to, used.Seconds()/part.n)
	}
	return nil
}

// connect makes connections, each with a handshake and one small exchange.
func (c *candidate) connect(n int) error {
	return measure.AtOnce(connecting, n, func(n int) error {
		for range n {
			conn, err := dialEcho(c.Addr)
			if err == nil {
				err = exchange(conn, 1)
				conn.Close()
			}
			if err != nil {
				return fmt.Errorf("connect: %w", err)
			}
		}
		return nil
	})
}

// touch makes connections without an exchange: the app sees a ClientHello and the end, and
// ends the connection, too.
func (c *candidate) touch(n int) error {
	return measure.AtOnce(connecting, n, func(n int) error {
		for range n {
			if err := touchBulk(c.Addr); err != nil {
				return fmt.Errorf("connect without an exchange: %w", err)
			}
		}
		return nil
	})
}

func touchBulk(addr string) error {
	conn, err := dialBulk(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, conn)
	if n > 0 && err == nil {
		err = fmt.Errorf("%d bytes came back", n)
	}
	return err
}

// ask sends requests over warm connections, one at a time on each.
func (c *candidate) ask(n int) error {
	return measure.AtOnce(requesting, n, func(n int) error {
		conn, err := dialEcho(c.Addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		return exchange(conn, n)
	})
}

func dialEcho(addr string) (net.Conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	conn := tls.Client(c, &tls.Config{ServerName: echoHost, InsecureSkipVerify: true})
	return conn, conn.Handshake()
}

func exchange(conn net.Conn, times int) error {
	b := make([]byte, block)
	for range times {
		if _, err := conn.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
	}
	return nil
}

// stream receives bytes over several connections.
func (c *candidate) stream(n int) error {
	return measure.AtOnce(streaming, n, func(n int) error {
		conn, err := dialBulk(c.Addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		return receive(conn, n)
	})
}

// receive asks for n bytes and takes them.
func receive(conn net.Conn, n int) error {
	if err := binary.Write(conn, binary.BigEndian, int64(n)); err != nil {
		return err
	}
	b := make([]byte, min(n, 256<<10))
	for n > 0 {
		got, err := conn.Read(b)
		if n -= got; err != nil {
			return err
		}
	}
	return nil
}

// bulkHello is the ClientHello for the app that sends bulk.
var bulkHello = sync.OnceValue(func() []byte {
	var sent bytes.Buffer
	tls.Client(writeOnly{Writer: &sent}, &tls.Config{ServerName: bulkHost}).Handshake()
	return sent.Bytes()
})

// writeOnly is a connection that takes all and answers nothing.
type writeOnly struct {
	net.Conn
	io.Writer
}

func (w writeOnly) Write(b []byte) (int, error) { return w.Writer.Write(b) }
func (w writeOnly) Read([]byte) (int, error)    { return 0, io.EOF }

func dialBulk(addr string) (net.Conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	hello := bytes.Clone(bulkHello())
	rand.Read(hello[11:43]) // the random: the gateway refuses a hello that it is passing on already
	_, err = c.Write(hello)
	return c, err
}

// openIdle opens connections on which one byte has come back, so that they are there
// from end to end.
func openIdle(addr string, n int) ([]net.Conn, error) {
	var conns []net.Conn
	for range n {
		c, err := dialBulk(addr)
		if err == nil {
			conns = append(conns, c)
			err = receive(c, 1)
		}
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		c.SetDeadline(time.Time{})
	}
	return conns, nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// measureIdle opens as many idle connections as fit, at most n.
func (c *candidate) measureIdle(ctx context.Context, n int) error {
	descriptors := 2 // that an idle connection holds
	if strings.HasPrefix(c.Name, "Go io.Copy") {
		descriptors = 6
	}
	c.idleCount = min(n, (openFiles()-1200)/descriptors)
	memory, files, err := measure.Holds(c.PID())
	if err != nil {
		return err
	}
	conns, err := openIdle(c.Addr, c.idleCount)
	if err != nil {
		return fmt.Errorf("open %d idle connections: %w", c.idleCount, err)
	}
	defer closeAll(conns)
	if err := measure.Pause(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	memoryThen, filesThen, err := measure.Holds(c.PID())
	c.idleKiB = float64(memoryThen-memory) / 1024 / float64(c.idleCount)
	c.idleFiles = float64(filesThen-files) / float64(c.idleCount)
	return err
}

// openFiles is how many files a process may have open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Max, 1<<20))
}
