package peering

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// The other end refuses a certificate after the handshake, as this one sees it: by an alert,
// and by hanging up while the first bytes are sent to it. Which of the two gRPC tells of
// is chance, so what was read last tells why nothing was heard.

// opening are credentials for one connection, which remember how it ended where nothing was
// heard on it.
type closeRecorder struct {
	credentials.TransportCredentials
	heard atomic.Bool
	ended chan struct{} // closed when reading fails before anything was heard
	err   error         // why; once ended is closed
}

func newCloseRecorder(c credentials.TransportCredentials) *closeRecorder {
	return &closeRecorder{TransportCredentials: c, ended: make(chan struct{})}
}

// ClientHandshake is the client's side of the handshake.
func (o *closeRecorder) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := o.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &recordedConn{Conn: conn, recorder: o}, info, nil
}

// Clone returns the same: there is one connection.
func (o *closeRecorder) Clone() credentials.TransportCredentials { return o }

// errHungUp says that a connection was ended before a word was said on it.
var errHungUp = errors.New("connected, but what listens there hung up before it said anything")

// alert is why the other end refuses this one.
type tlsAlert struct{ err error }

// Error is as gRPC has it where the alert comes in the handshake.
func (a tlsAlert) Error() string { return fmt.Sprintf("authentication handshake failed: %v", a.err) }

// why is why nothing was heard; nil where something was, or the other end has not said.
func (o *closeRecorder) reason() error {
	select {
	case <-o.ended:
	default:
		return nil
	}
	var op *net.OpError
	switch {
	case errors.As(o.err, &op) && op.Op == "remote error":
		return tlsAlert{o.err}
	case errors.Is(o.err, io.EOF) || hungUp(o.err):
		return errHungUp
	}
	return nil
}

// hungUp tells whether the other end has ended the connection.
func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// openingConn is the connection. It is read by one goroutine.
type recordedConn struct {
	net.Conn
	recorder *closeRecorder
}

// Read reads, and remembers how that ended.
func (c *recordedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch o := c.recorder; {
	case o.heard.Load():
	case n > 0:
		o.heard.Store(true)
	case err != nil && o.err == nil:
		o.err = err
		close(o.ended)
	}
	return n, err
}

// lastWordsWithin is how long what the other end said before it hung up may take to be read.
// It is there already.
const lastBytesWithin = time.Second

// Write writes. Where the other end has hung up, what it said before is read first: nobody
// reads any more once this has failed.
func (c *recordedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil && hungUp(err) && !c.recorder.heard.Load() {
		timer := time.NewTimer(lastBytesWithin)
		defer timer.Stop()
		select {
		case <-c.recorder.ended:
		case <-timer.C:
		}
	}
	return n, err
}
