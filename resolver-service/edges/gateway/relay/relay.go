// Package relay passes bytes both ways between pairs of TCP connections.
//
// A relay keeps what TCP says about endings. When one side closes its direction, the relay
// passes on all bytes before that and then closes the direction on the other side. The other
// direction goes on. It passes a reset on as a reset.
//
// Bytes that one side does not take stay unread on the other, but for a bounded amount. They
// delay no other pair.
//
// [New] makes the best relay of this system. On Linux that is [Epoll]: a few event loops, which
// a gateway may also use for connections that it has yet to pair (see [Loop]). [Copy] works
// everywhere.
package relay

import (
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

// Relay passes bytes between pairs of connections until both directions have ended.
type Relay interface {
	// Pass takes both connections over and returns at once. It tells the owner when the pair
	// has ended, which may be before Pass returns. Any goroutine calls it.
	Pass(client, backend *net.TCPConn, owner Owner)
	// End resets the pairs of owners that are over, soon after it returns. over must not block. Any
	// goroutine calls it.
	End(over func(Owner) bool)
	// Close resets every pair, ends the relay's goroutines and waits for them. Call it once.
	// A later Pass closes its connections.
	Close()
}

// Owner learns how its pair ends. The relay calls it from goroutines that serve other pairs
// too, so it must not block.
type Owner interface {
	// Unanswered is called when the relay ends the pair because the backend has sent nothing
	// for [Config.Answer]. It returns the last bytes for the client. Closed follows.
	Unanswered() (last []byte)
	// Closed is called once, when both connections are closed.
	Closed()
	// Traffic is where the bytes of the pair count. It is called once, and may be shared by pairs.
	Traffic() *Traffic
}

// Config is what a relay needs. Failed and Logger must be set.
type Config struct {
	Stall   time.Duration // how long bytes may wait for their receiver
	Answer  time.Duration // how long a backend may send nothing at first; 0 is no limit
	Connect time.Duration // how long [Loop.Connect] may take
	Failed  func(error)   // called for each pair that the relay can't take over, before Closed
	Logger  *slog.Logger
}

// Traffic counts the bytes that a relay passes on.
type Traffic struct {
	ToBackend, ToClient atomic.Uint64
}

// KeepAlive finds peers that vanished, after two minutes. It is slow on purpose: most
// connections are idle, and a gRPC client that needs more has gRPC's own keepalive.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 20 * time.Second, Count: 3}

// Conn is a connection of which each direction ends by itself: by TCP, or a stream in another
// connection.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Reset closes a connection so that its peer sees a reset and no TIME_WAIT is left.
func Reset(conn Conn) {
	switch c := conn.(type) {
	case *net.TCPConn:
		c.SetLinger(0)
	case interface{ Reset() }:
		c.Reset()
	}
	conn.Close()
}
