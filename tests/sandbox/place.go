package sandbox

import (
	"context"
	"net"
	"net/http"
)

// Place is a network of its own that a sandbox can be in, such as a namespace of Linux.
type Place interface {
	// Do calls f on a thread that is in the place: the sockets that f opens and the
	// processes that it starts are in it, for good. That thread is the one that calls Do, if
	// its goroutine is locked to it. f starts no goroutines to do so.
	Do(f func() error) error
}

// in calls f in a place; nil is where this process is.
func in(p Place, f func() error) error {
	if p == nil {
		return f()
	}
	return p.Do(f)
}

// listen listens in a place.
func listen(p Place, address string) (lis net.Listener, err error) {
	err = in(p, func() error {
		lis, err = net.Listen("tcp", address)
		return err
	})
	return lis, err
}

// Dial connects from within a place to an IP address and port; nil is where this process is.
func Dial(ctx context.Context, p Place, network, address string) (conn net.Conn, err error) {
	err = in(p, func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// newClient makes a client for what listens on the loopback of a place, so that no proxy
// may come between.
func newClient(p Place) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return Dial(ctx, p, network, address)
	}
	return &http.Client{Transport: &http.Transport{Proxy: nil, DialContext: dial, MaxIdleConnsPerHost: 64}}
}
