package gateway

import (
	"context"
	"errors"
	"fmt"
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

// dial connects to one of a destination's instances, and says which: the one that was
// chosen or, when it can't be reached, one of the others in their order. No byte has
// been sent by then, so no instance sees a connection that another one serves. first,
// if not nil, is how the first attempt went. The connection counts among the loads.
func (s *serving) dial(to destination, first *attempt) (*net.TCPConn, string, *refusal) {
	ctx, cancel := context.WithTimeout(s.dials, 3*s.cfg.DialTimeout)
	defer cancel()
	if first == nil {
		i := to.choose(s.loads)
		conn, err := s.dialInstance(ctx, to.instances[i])
		if err == nil {
			return conn, to.instances[i], nil
		}
		first = &attempt{i, err}
	}
	failed := []error{first.err}
	for _, i := range to.others() {
		if i == first.instance || ctx.Err() != nil {
			continue
		}
		s.metrics.retries.Inc()
		conn, err := s.dialInstance(ctx, to.instances[i])
		if err == nil {
			return conn, to.instances[i], nil
		}
		failed = append(failed, err)
	}
	return nil, "", &refusal{reason: unreachable, app: to.app, revision: to.revision,
		err: fmt.Errorf("%d of %d instances tried: %w", len(failed), len(to.instances), errors.Join(failed...))}
}

// dialInstance connects to an instance, and adds the connection to its load.
func (s *serving) dialInstance(ctx context.Context, instance string) (*net.TCPConn, error) {
	s.loads.add(instance)
	d := net.Dialer{Timeout: s.cfg.DialTimeout, KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", instance)
	if err != nil {
		s.loads.remove(instance)
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}
