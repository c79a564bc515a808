package gateway

import (
	"log/slog"
	"net"
	"time"
)

// A relay passes bytes both ways between pairs of connections until both directions
// have ended, and keeps what TCP says about endings: a closed direction is closed on
// the other side, once all before it was passed on, and the other direction goes on;
// a reset is passed on as a reset.
//
// What one side does not take stays unread on the other, but for a bounded amount; it
// delays no other pair.
type relay interface {
	// pass takes both connections over and returns at once; of is what to tell of
	// them. Any goroutine calls it.
	pass(client, backend *net.TCPConn, of *admitted)
	// close resets every pair, ends the relay's goroutines and waits for them. It is
	// called once; a pass that comes later closes its connections.
	close()
}

// relayConfig is what a relay is given.
type relayConfig struct {
	stall   time.Duration // how long bytes may wait for their receiver
	answer  time.Duration // how long a backend may say nothing at first
	dial    time.Duration // how long connecting to one may take
	traffic *traffic
	ended   func(*admitted) // called once for each pair, when both connections are closed
	silent  func(*admitted) // called for a pair that ends since its backend has said nothing
	failed  func(error)     // called for each pair that could not be taken over, before ended
	logger  *slog.Logger
}
