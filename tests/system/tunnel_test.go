package system

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// behindNAT is west, and a cluster "east" whose service listens nowhere that west could reach, and
// which dials west. Each has roots and a trust domain of its own.
func behindNAT(t *testing.T, gateway string) *domains {
	t.Helper()
	d := twoDomainsWith(t, map[string]sandbox.ClusterOptions{"east": {Gateway: sandbox.NoGateway}})
	if gateway == "" {
		gateway = d.west.Gateway
	}
	invitation, _ := d.run(t, d.west, "", "link", "invite", "east", "--gateway", gateway)
	d.run(t, d.east, invitation, "link", "accept", "-", "--dial-out")
	for _, c := range [][2]*sandbox.Cluster{{d.west, d.east}, {d.east, d.west}} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if state, why := d.peer(t, c[0], c[1].Name); state != "connected" {
				return fmt.Errorf("%s finds %s %s: %s", c[0].Name, c[1].Name, state, why)
			}
			return nil
		})
	}
	return d
}

// What docs/how-to/dial-out.md says: calls in both directions, with a port open in one cluster alone.
func TestAClusterThatOnlyDialsOut(t *testing.T) {
	t.Parallel()
	d := behindNAT(t, "")
	d.apply(t, d.east, export("shop", "orders", "west"), selection("shop", "basket", "app: prices, as: tariffs"))
	d.apply(t, d.west, export("shop", "prices", "east"), selection("shop", "checkout", "app: orders, as: purchases"), selection("shop", "narrow", "app: orders"))
	d.app(t, d.east, "orders", "east", "west")
	d.app(t, d.west, "prices", "west", "east")
	answers(t, d.app(t, d.west, "checkout", "west", "east"), "purchases", "east")
	answers(t, d.app(t, d.east, "basket", "west", "east"), "tariffs", "west")

	// Without the other root, a sidecar gets nowhere by the tunnel either.
	narrow := d.app(t, d.west, "narrow", "west")
	d.leadsTo(t, d.west, "shop/narrow", "orders", "east")
	if _, err := narrow.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", untraced); err == nil {
		t.Error("a sidecar that does not trust the callee has called it")
	}

	for c, want := range map[*sandbox.Cluster][]string{d.west: {"it dials this cluster; 1 open"}, d.east: {"this cluster dials it; 1 open"}} {
		out, _ := d.run(t, c, "", "status", "--peer", map[string]string{"west": "east", "east": "west"}[c.Name])
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("isthmus status in %s lacks %q:\n%s", c.Name, w, out)
			}
		}
		if out, _, _ := d.isthmus(t, c, "", "check"); strings.Contains(out, "peer-tunnel") && !strings.Contains(out, "ok") {
			t.Errorf("isthmus check in %s:\n%s", c.Name, out)
		}
	}
	explained, _ := d.run(t, d.west, "", "explain", "--from", "shop/checkout", "purchases")
	if !strings.Contains(explained, d.west.Gateway[strings.LastIndex(d.west.Gateway, ":"):]) {
		t.Errorf("isthmus explain does not show west's own gateway:\n%s", explained)
	}
}

// Each service is rolled under calls, and none fails.
func TestARolledEndOfATunnelIsNotFelt(t *testing.T) {
	t.Parallel()
	d := behindNAT(t, "")
	d.apply(t, d.east, export("shop", "orders", "west"))
	d.apply(t, d.west, selection("shop", "checkout", "app: orders"))
	d.app(t, d.east, "orders", "east", "west")
	checkout := d.app(t, d.west, "checkout", "west", "east")
	answers(t, checkout, "orders", "east")
	l := startLoad(t, "both ends of a tunnel are rolled", calling(checkout, "orders"))
	for _, c := range []*sandbox.Cluster{d.east, d.west, d.east} {
		l.answersFrom("east")
		if err := c.Replace(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
		l.answersFrom("east")
	}
	l.noneFailed()
}

// handshake is one with an app, by a gateway.
func handshake(gateway, name string) error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: meshtest.Attempt}, "tcp", gateway, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err == nil {
		conn.Close()
	}
	return err
}

// A tunnel is cut under calls: they go on by the next one, in less than a second.
func TestACutTunnelIsBackAtOnce(t *testing.T) {
	t.Parallel()
	d := twoDomainsWith(t, map[string]sandbox.ClusterOptions{"east": {Gateway: sandbox.NoGateway}})
	way := newRelay(t, d.west.Gateway)
	invitation, _ := d.run(t, d.west, "", "link", "invite", "east", "--gateway", way.address)
	d.run(t, d.east, invitation, "link", "accept", "-", "--dial-out")
	d.apply(t, d.east, export("shop", "orders", "west"))
	d.apply(t, d.west, selection("shop", "checkout", "app: orders"))
	d.app(t, d.east, "orders", "east", "west")
	checkout := d.app(t, d.west, "checkout", "west", "east")
	answers(t, checkout, "orders", "east")
	l := startLoad(t, "a tunnel is cut", calling(checkout, "orders"))
	var away []time.Duration
	watch, begun := stalls.Begin(t), time.Now()
	for range 5 {
		l.answersFrom("east")
		began := time.Now()
		way.cut()
		meshtest.Eventually(t, meshtest.Patience, func() error { return handshake(d.west.Gateway, "orders.shop.east.isthmus.internal") })
		away = append(away, time.Since(began).Round(time.Millisecond))
		l.answersFrom("east")
	}
	l.noneFailed() // daprd tries those under way again
	t.Logf("the callee answers again after %v", away)
	if slices.Sort(away); away[len(away)/2] > time.Second+10*watch.Longest(begun) {
		t.Errorf("it answers again after %v; want less than a second", away)
	}

	// Without any way, west knows within seconds, and says what is missing.
	way.kill()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if state, why := d.peer(t, d.west, "east"); state != "stale" || !strings.Contains(why, "has no tunnel here") {
			return fmt.Errorf("west finds east %s: %s", state, why)
		}
		if out, _, _ := d.isthmus(t, d.west, "", "check"); !strings.Contains(out, "peer-tunnel") {
			return errors.New(out)
		}
		return nil
	})
}
