package admin

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

func TestABodyThatNeverComesHoldsNoConnection(t *testing.T) {
	for what, header := range map[string]string{"so many bytes": "Content-Length: 100", "chunks": "Transfer-Encoding: chunked"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, client := net.Pipe()
				l := &oneConnection{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.conns <- server
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				s := New(Config{Registry: prometheus.NewRegistry()}, quiet)
				go func() { done <- s.serve(ctx, l, s.Handler()) }()
				begun := time.Now()
				if _, err := io.WriteString(client, "GET /livez HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				_ = client.SetReadDeadline(begun.Add(time.Hour))
				if _, err := io.Copy(io.Discard, client); err != nil || time.Since(begun) > 2*bodyTimeout {
					t.Errorf("closed after %s: %v; want it after %s", time.Since(begun), err, bodyTimeout)
				}
				client.Close()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAClientThatSaysNothingHoldsNoConnection: half a head, and none after a request that was answered.
func TestAClientThatSaysNothingHoldsNoConnection(t *testing.T) {
	for text, limit := range map[string]time.Duration{
		"GET /livez HTTP/1.1\r\nHos":                     5 * time.Second,
		"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n": time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			server, client := net.Pipe()
			l := &oneConnection{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
			l.conns <- server
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			s := New(Config{Registry: prometheus.NewRegistry()}, quiet)
			go func() { done <- s.serve(ctx, l, s.Handler()) }()
			began := time.Now()
			if _, err := io.WriteString(client, text); err != nil {
				t.Fatal(err)
			}
			_ = client.SetReadDeadline(began.Add(time.Hour))
			answer, err := io.ReadAll(client)
			if took := time.Since(began); err != nil || took < limit || took > limit+time.Second {
				t.Errorf("%q: closed after %s (%v), want it after %s; answered %q", text, took, err, limit, answer)
			}
			client.Close()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
