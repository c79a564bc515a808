package transport

import (
	"testing"
)

func TestUDPAndTCPOnOnePort(t *testing.T) {
	r := serve(t, Config{})
	for _, network := range []string{"udp", "tcp"} {
		if got := texts(t, ask(t, network, r.addr, "a.isthmus.internal"))[1]; got != "127.0.0.1" {
			t.Errorf("%s: sent to %s, want 127.0.0.1", network, got)
		}
	}
}
