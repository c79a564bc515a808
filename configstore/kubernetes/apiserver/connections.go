package apiserver

import (
	"context"
	"net"
	"sync"
)

// connections are those that are open. HTTP/2 calls one idle a moment after its last
// request was given up, so that to close the idle ones can miss it.
type connections struct {
	mu   sync.Mutex
	open map[*connection]bool
}

type connection struct {
	net.Conn
	of *connections
}

// Close is that of net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// dialing notes what a dialer opens.
func (all *connections) dialing(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &connection{conn, all}
		all.mu.Lock()
		defer all.mu.Unlock()
		all.open[c] = true
		return c, nil
	}
}

// close closes them all.
func (all *connections) close() {
	all.mu.Lock()
	var open []*connection
	for c := range all.open {
		open = append(open, c)
	}
	all.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // nobody has anything to lose any more
	}
}
