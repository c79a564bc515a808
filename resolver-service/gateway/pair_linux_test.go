package gateway

import "testing"

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
