package gateway

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// only allows nothing but some addresses, and knows what it was asked for.
type only struct {
	allowed []string

	mu    sync.Mutex
	asked []netip.AddrPort
}

func (o *only) check(a netip.AddrPort) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, a)
	for _, s := range o.allowed {
		if a.String() == s {
			return nil
		}
	}
	return errors.New("is loopback")
}

func TestAnAddressThatIsNotAllowedIsNotConnectedTo(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		forbidden := backend(t, func(*net.TCPConn) { t.Error("an instance that is not allowed was connected to") })
		_, port, _ := net.SplitHostPort(forbidden)
		allowed := tlsBackend(t, "allowed")
		rules := &only{allowed: []string{allowed}}
		gw := serve(t, Config{Check: rules.check}, exports(1, map[string][]string{
			"orders": {forbidden, "localhost:" + port, "[::ffff:127.0.0.1]:" + port, allowed},
			"ledger": {forbidden, "localhost:" + port},
			"idle":   {forbidden, allowed + "0"}, // no such port: not a matter of what is allowed
		}), with)
		for range 10 {
			if got, _, err := call(t, gw.addr, ordersHost); got != "allowed" {
				t.Fatalf("answered by %q, %v\n%s", got, err, gw.log)
			}
		}
		for host, want := range map[string]reason{ledgerHost: notAllowed, idleHost: unreachable} {
			_, _, err := call(t, gw.addr, host)
			if err == nil || !strings.Contains(err.Error(), "internal error") || gw.refused(want) != 1 {
				t.Errorf("%s: %v, and %d refusals with reason %s, want 1", host, err, gw.refused(want), want)
			}
		}
		if gw.metric("isthmus_gateway_instances_refused_total") == 0 || !strings.Contains(gw.log.String(), "is loopback") {
			t.Errorf("not counted, or not logged:\n%s", gw.log)
		}
		for _, a := range rules.asked {
			if a.Addr().Is4In6() {
				t.Errorf("asked for %s, which is an IPv4 address", a)
			}
		}
	})
}
