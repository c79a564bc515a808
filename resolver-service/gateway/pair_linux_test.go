package gateway

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"
)

// A loop that was busy learns of an end and of the reset that followed in one event.
// Reading tells of the end only, and no second event comes.
func TestResetRightAfterHalfCloseIsPassedOn(t *testing.T) {
	for _, side := range []string{"client", "app"} {
		t.Run(side, func(t *testing.T) {
			loops := make(chan []*loop, 1)
			gw, acts, other := pass(t, Config{}, func(g *Gateway) {
				g.newRelay = func(cfg relayConfig) (relay, error) {
					r, err := newRelay(cfg)
					if err == nil {
						loops <- r.(*epollRelay).loops
					}
					return r, err
				}
			})
			if side == "app" {
				acts, other = other, acts
			}
			held, release := make(chan struct{}), make(chan struct{})
			for _, l := range <-loops {
				l.post(func() { held <- struct{}{}; <-release })
				<-held
			}
			acts.CloseWrite()
			reset(acts)
			close(release)
			if _, err := other.Read(make([]byte, 1)); err == nil {
				t.Fatal("read something that was never sent")
			}
			// Nothing more is sent: that would tell by itself.
			eventually(t, "the connection is over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
		})
	}
}

func TestAPairThatCantBeTakenOverIsReported(t *testing.T) {
	var failed, ended int
	r, err := newRelay(relayConfig{
		stall: time.Minute, traffic: &traffic{}, logger: slog.New(slog.DiscardHandler),
		failed: func(error) { failed++ }, ended: func(*admitted) { ended++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	addr := backend(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	client, app := dialTCP(t, addr), dialTCP(t, addr)
	client.Close() // as good as no descriptor to be had
	r.pass(client, app, &admitted{})
	if failed != 1 || ended != 1 {
		t.Errorf("%d failures were reported and %d pairs ended, want 1 and 1", failed, ended)
	}
}
