package resolverservice

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns"
)

func TestAPartAloneRuns(t *testing.T) {
	for _, part := range []string{"resolver", "dns", "gateway", "admin", "debug"} {
		cfg := configOf(t, "west", nil)
		cfg.Listen = Listen{}
		switch part {
		case "resolver":
			cfg.Listen.Resolver = "127.0.0.1:0"
		case "dns":
			cfg.Listen.DNS = []dns.Endpoint{{Address: "127.0.0.1:0"}}
		case "gateway":
			cfg.Listen.Gateway = "127.0.0.1:0"
		case "admin":
			cfg.Listen.Admin = "127.0.0.1:0"
		case "debug":
			cfg.Listen.Debug = "127.0.0.1:0"
		}
		s := New(cfg, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		conn, err := net.DialTimeout("tcp", s.Addr(part).String(), patience)
		if err != nil {
			t.Errorf("%s alone: %v", part, err)
		} else {
			conn.Close()
		}
		for _, other := range []string{"resolver", "dns", "gateway", "admin", "debug"} {
			if other != part && s.Addr(other) != nil {
				t.Errorf("%s runs beside %s", other, part)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s alone: %v", part, err)
		}
	}
}
