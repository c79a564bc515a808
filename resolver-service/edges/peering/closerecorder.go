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

// After TLS 1.3's handshake the other end may still refuse the certificate. It sends an alert,
// and closes the connection while the first bytes are on their way. gRPC reports either one by
// chance. So closeRecorder keeps the last read error, which says why nothing arrived.

// closeRecorder is credentials for one connection. It records how a connection ended that never
// delivered a byte.
type closeRecorder struct {
	credentials.TransportCredentials
	heard atomic.Bool
	ended chan struct{} // closed when reading fails before the first byte
	err   error         // the read error; valid once ended is closed
}

func newCloseRecorder(c credentials.TransportCredentials) *closeRecorder {
	return &closeRecorder{TransportCredentials: c, ended: make(chan struct{})}
}

// ClientHandshake wraps the connection after the handshake.
func (o *closeRecorder) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := o.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &recordedConn{Conn: conn, recorder: o}, info, nil
}

// Clone returns the receiver, since there is only one connection.
func (o *closeRecorder) Clone() credentials.TransportCredentials { return o }

// errHungUp says that the other end closed the connection before it sent anything.
var errHungUp = errors.New("connected, but the other end closed the connection before it sent anything")

// tlsAlert says that the other end refuses this one.
type tlsAlert struct{ err error }

// Error reads like gRPC's error for an alert during the handshake.
func (a tlsAlert) Error() string { return fmt.Sprintf("authentication handshake failed: %v", a.err) }

// reason says why no byte arrived. It is nil if one did, or if the reason is unknown.
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

// hungUp tells whether the other end closed the connection.
func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// recordedConn is the connection. One goroutine reads it.
type recordedConn struct {
	net.Conn
	recorder *closeRecorder
}

// Read records the first byte, or the error before it.
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

// lastBytesWithin is how long reading may take after the other end hung up. The bytes are here
// already.
const lastBytesWithin = time.Second

// Write waits for the reader when the other end has hung up, because gRPC stops reading after a
// failed write.
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
