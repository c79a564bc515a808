package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// attempt is one instance that was tried in vain, by its place in the list.
type attempt struct {
	instance int
	err      error
}

// dial connects to one of a destination's instances, and says which: the one that was
// chosen or, when it can't be reached, one of the others in their order. No byte has
// been sent by then, so no instance sees a connection that another one serves. first,
// if not nil, is how the first attempt went. The connection counts among the loads.
//
// A shard whose instance can't be reached is given a moment to have another: it is where
// the shard's connections stay, and the others have shards of their own.
func (s *serving) dial(in greeting, to destination, first *attempt) (relay.Conn, string, *refusal) {
	ctx, cancel := context.WithTimeout(s.dials, 3*s.cfg.DialTimeout)
	defer cancel()
	if to.tunnel != "" {
		conn, err := s.cfg.OpenTunnel(ctx, to.tunnel)
		if err != nil {
			return nil, "", &refusal{reason: noTunnel, app: to.app, revision: to.revision, err: err}
		}
		by := "the tunnel of " + to.tunnel
		s.loads.add(by)
		return conn, by, nil
	}
	if first == nil {
		i := to.choose(s.loads)
		conn, err := s.dialInstance(ctx, to, i)
		if err == nil {
			return conn, to.instances[i], nil
		}
		first = &attempt{i, err}
	}
	failed, dead := []error{first.err}, to.instances[first.instance]
	order := to.others()
	if to.shard != noShard {
		if now, ok := s.without(ctx, in, dead); ok {
			to, order = now, append([]int{now.first}, now.others()...)
		}
	}
	for n, i := range order {
		if to.instances[i] == dead || slices.Contains(order[:n], i) || ctx.Err() != nil {
			continue
		}
		s.metrics.retries.Inc()
		conn, err := s.dialInstance(ctx, to, i)
		if err == nil {
			return conn, to.instances[i], nil
		}
		failed = append(failed, err)
	}
	reason := notAllowed
	if slices.ContainsFunc(failed, func(err error) bool { return !errors.As(err, new(*refusedInstance)) }) {
		reason = unreachable
	}
	return nil, "", &refusal{reason: reason, app: to.app, revision: to.revision,
		err: fmt.Errorf("%d of %d instances tried: %w", len(failed), len(to.instances), errors.Join(failed...))}
}

// resettle is how long an instance that can't be reached may stand in the table.
const resettle = 100 * time.Millisecond

// without waits for a table that does not have an instance, and says where it leads.
func (s *serving) without(ctx context.Context, in greeting, instance string) (to destination, ok bool) {
	timer := time.NewTimer(resettle)
	defer timer.Stop()
	for {
		_, _, changed := s.cfg.Table.Follow()
		if to, refused := s.route(in); refused == nil && !slices.Contains(to.instances, instance) {
			return to, true
		}
		select {
		case <-changed:
		case <-timer.C:
			return destination{}, false
		case <-ctx.Done():
			return destination{}, false
		}
	}
}

// refusedInstance is why Config.Check refuses an address.
type refusedInstance struct{ err error }

func (e *refusedInstance) Error() string { return e.err.Error() }
func (e *refusedInstance) Unwrap() error { return e.err }

// check asks Config.Check for an address.
func (g *Gateway) check(address netip.AddrPort) error {
	if g.cfg.Check == nil {
		return nil
	}
	if err := g.cfg.Check(netip.AddrPortFrom(address.Addr().Unmap(), address.Port())); err != nil {
		return &refusedInstance{err}
	}
	return nil
}

// checkSocket is that for [net.Dialer], which has resolved host names by then.
func (g *Gateway) checkSocket(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return g.check(to)
}

// dialInstance connects to an instance, and adds the connection to its load.
func (s *serving) dialInstance(ctx context.Context, to destination, place int) (*net.TCPConn, error) {
	instance := to.instances[place]
	s.loads.add(instance)
	d := net.Dialer{Timeout: s.cfg.DialTimeout, KeepAliveConfig: relay.KeepAlive, ControlContext: s.checkSocket}
	conn, err := d.DialContext(ctx, "tcp", instance)
	if err == nil {
		return conn.(*net.TCPConn), nil
	}
	s.loads.remove(instance)
	if refused := new(refusedInstance); errors.As(err, &refused) {
		s.refused.instance(to.app, instance, refused)
	}
	return nil, err
}
