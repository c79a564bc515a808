// Package silentclient holds servers to closing connections on which a client says no more.
package silentclient

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// oneConnection is a listener with a client that is there already.
type oneConnection struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *oneConnection) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConnection) Close() error   { close(l.closed); return nil }
func (l *oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

// IsClosed has a client send a text and no more, on a fake clock. The server, which serves until
// its context ends, must close the connection after a time, and at most a second later.
func IsClosed(t *testing.T, text string, after time.Duration, serve func(context.Context, net.Listener) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		l := &oneConnection{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.conns <- server
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- serve(ctx, l) }()
		began := time.Now()
		if _, err := io.WriteString(client, text); err != nil {
			t.Fatal(err)
		}
		_ = client.SetReadDeadline(began.Add(time.Hour))
		answer, err := io.ReadAll(client)
		if took := time.Since(began); err != nil || took < after || took > after+time.Second {
			t.Errorf("%q: closed after %s (%v), want it after %s; answered %q", text, took, err, after, answer)
		}
		client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
