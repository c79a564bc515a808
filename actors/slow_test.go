package actors

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/throttle"
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

// TestAClientThatSaysNothingHoldsNoConnection: half a request, and none after one that was answered.
func TestAClientThatSaysNothingHoldsNoConnection(t *testing.T) {
	for text, limit := range map[string]time.Duration{
		"GET /healthz HTTP/1.1\r\nHos":             headerTimeout,
		"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n": quietTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			server, client := net.Pipe()
			l := &oneConnection{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
			l.conns <- server
			log := slog.New(slog.DiscardHandler)
			b := &Bridge{log: log, often: throttle.New(log, time.Minute)}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- b.serve(ctx, l) }()
			began := time.Now()
			if _, err := io.WriteString(client, text); err != nil {
				t.Fatal(err)
			}
			_ = client.SetReadDeadline(began.Add(time.Hour))
			_, err := io.Copy(io.Discard, client)
			if took := time.Since(began); err != nil || took < limit || took > limit+time.Second {
				t.Errorf("%q: closed after %s (%v), want it after %s", text, took, err, limit)
			}
			client.Close()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
