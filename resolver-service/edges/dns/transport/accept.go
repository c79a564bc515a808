package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// serveTCP takes connections until ctx ends, and returns when all of them are closed.
func (s *serving) serveTCP(ctx context.Context, l net.Listener) error {
	var running sync.WaitGroup
	defer running.Wait()
	stop := context.AfterFunc(ctx, func() {
		l.Close()
		s.conns.interrupt()
	})
	defer stop()
	config := s.tlsConfig()
	var pause time.Duration
	for {
		raw, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			c := s.newConn(raw, config)
			if !s.conns.add(c) {
				s.counts.refused.Add(1)
				raw.Close()
				continue
			}
			running.Go(func() { c.serve(ctx) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("dns: listener %s was closed: %w", l.Addr(), err)
		default:
			pause = s.acceptFailed(ctx, err, pause)
		}
	}
}

// acceptFailed waits a moment, twice as long each time. Most often descriptors have run
// out, so one is given back.
func (s *serving) acceptFailed(ctx context.Context, err error, pause time.Duration) time.Duration {
	pause = min(max(2*pause, 5*time.Millisecond), time.Second)
	s.often.Warn("accept", "dns: a TCP connection could not be accepted; trying again", "listener", s.addr, "err", err, "pause", pause)
	s.conns.evictAny()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	return pause
}

// tlsConfig is the configuration with what RFC 7858 asks for; nil for plain TCP.
func (s *serving) tlsConfig() *tls.Config {
	if s.cfg.TLS == nil {
		return nil
	}
	config := s.cfg.TLS.Clone()
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	config.NextProtos = []string{"dot"}
	return config
}
