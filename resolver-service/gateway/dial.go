package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// keepAlive finds peers that vanished, after two minutes. It is slow on purpose:
// most connections are idle, and gRPC's own keepalive is there for who wants more.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 20 * time.Second, Count: 3}

// attempt is one instance that was tried in vain, by its place in the list.
type attempt struct {
	instance int
	err      error
}

// dial connects to one of a destination's instances, chosen at random. When it
// can't be reached, the others are tried in random order. No byte has been sent by
// then, so no instance sees a connection that another one serves. first, if not nil,
// is how the first attempt went.
func (s *serving) dial(to destination, first *attempt) (*net.TCPConn, *refusal) {
	ctx, cancel := context.WithTimeout(s.dials, 3*s.cfg.DialTimeout)
	defer cancel()
	if first == nil {
		i := to.choose()
		conn, err := s.dialInstance(ctx, to.instances[i])
		if err == nil {
			return conn, nil
		}
		first = &attempt{i, err}
	}
	failed := []error{first.err}
	for _, i := range rand.Perm(len(to.instances)) {
		if i == first.instance || ctx.Err() != nil {
			continue
		}
		s.metrics.retries.Inc()
		conn, err := s.dialInstance(ctx, to.instances[i])
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, &refusal{reason: unreachable, app: to.app, revision: to.revision,
		err: fmt.Errorf("%d of %d instances tried: %w", len(failed), len(to.instances), errors.Join(failed...))}
}

// choose picks the instance to try first, by its place in the list.
func (d *destination) choose() int { return rand.IntN(len(d.instances)) }

func (s *serving) dialInstance(ctx context.Context, instance string) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: s.cfg.DialTimeout, KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", instance)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}
