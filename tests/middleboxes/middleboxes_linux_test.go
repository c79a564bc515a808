package middleboxes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func TestMain(m *testing.M) {
	os.Exit(network.Own(func() int { return meshtest.Leaks(m.Run()) }))
}

var (
	west = netip.MustParseAddr("10.78.1.1")
	east = netip.MustParseAddr("10.78.2.1")
	box  = netip.MustParseAddr("10.78.3.1") // of HAProxy
)

const port = 15443

// cluster is a service in a network namespace of its own, that an operator's socket leads to.
type cluster struct {
	*sandbox.Service
	conn *grpc.ClientConn
}

// start starts the service of a cluster.
func start(t *testing.T, n *network.Network, name string, address netip.Addr, authority *sandbox.Authority) *cluster {
	t.Helper()
	place, err := n.Place(address)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.NewIn(place, t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(t.TempDir(), "operator.sock")
	s, err := b.Service(meshtest.Within(t, meshtest.Patience), sandbox.ServiceOptions{
		Cluster: name, Authority: authority, Gateway: netip.AddrPortFrom(address, port).String(), Listen: map[string]any{"operator": "unix://" + socket},
	})
	programstest.OrSkip(t, err)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &cluster{s, conn}
}

// apply writes a Cluster object.
func (c *cluster) apply(t *testing.T, name string, gateway netip.Addr) {
	t.Helper()
	object := fmt.Sprintf(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"Cluster","metadata":{"name":%q},"spec":{"gateways":[{"address":%q}],"staleAfter":"1m"}}`, name, netip.AddrPortFrom(gateway, port))
	req := &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{{Json: []byte(object)}}}
	if _, err := v1alpha1.NewObjectsClient(c.conn).Apply(meshtest.Within(t, meshtest.Patience), req); err != nil {
		t.Fatal(err)
	}
}

// faults are the checks of the way to a peer that are not well.
func (c *cluster) faults(t *testing.T) (all []string) {
	t.Helper()
	ctx := meshtest.Within(t, meshtest.Patience)
	stream, err := v1alpha1.NewStatusClient(c.conn).Check(ctx, &v1alpha1.CheckRequest{})
	for err == nil {
		var m *v1alpha1.CheckResponse
		if m, err = stream.Recv(); err == nil {
			for _, r := range m.GetResults() {
				if r.GetLevel() != "ok" {
					all = append(all, r.GetCheck()+" "+r.GetLevel())
				}
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return []string{err.Error()}
	}
	return all
}

// haproxy is a load balancer before east's gateway.
type haproxy struct{ bind, server string } // what its lines have after the address

func (h haproxy) start(t *testing.T, place *network.Place, authority *sandbox.Authority) {
	t.Helper()
	binary := programstest.Path(t, "haproxy")
	dir := t.TempDir()
	cert, key, err := authority.Server("lb.example")
	if err != nil {
		t.Fatal(err)
	}
	pem := filepath.Join(dir, "lb.pem")
	config := filepath.Join(dir, "haproxy.cfg")
	text := fmt.Sprintf("defaults\n  mode tcp\n  timeout connect 2s\n  timeout client 1m\n  timeout server 1m\nlisten gateway\n  bind %s:%d %s\n  server east %s:%d %s\n",
		box, port, strings.ReplaceAll(h.bind, "LB", pem), east, port, h.server)
	if err := errors.Join(os.WriteFile(pem, append(cert, key...), 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	p, err := sandbox.Start(sandbox.Command{Name: "haproxy", Path: binary, Args: []string{"-db", "-f", config}, LogDir: dir, Place: place})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.Tail(10))
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	serverstest.Await(t, "HAProxy", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), meshtest.Patience)
		defer cancel()
		conn, err := sandbox.Dial(ctx, place, "tcp", netip.AddrPortFrom(box, port).String())
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// TestWhatStandsBetweenClustersIsFound puts HAProxy before a gateway as platform teams do, well and
// badly, and loses packets on the way.
func TestWhatStandsBetweenClustersIsFound(t *testing.T) {
	network.Need(t)
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	n := network.New(1)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	w, e := start(t, n, "west", west, authority), start(t, n, "east", east, authority)
	lb, err := n.Place(box)
	if err != nil {
		t.Fatal(err)
	}
	e.apply(t, "west", west)
	only := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	for _, c := range []struct {
		name    string
		haproxy *haproxy // nil: nothing is in between
		way     network.Conditions
		want    []string
	}{
		{name: "nothing"},
		{name: "a load balancer that passes TLS on", haproxy: &haproxy{}},
		{name: "one that has lost the gateway", haproxy: &haproxy{server: "disabled"}, want: []string{"gateway-port fail"}},
		{name: "one that sends the PROXY protocol", haproxy: &haproxy{server: "send-proxy"}, want: []string{"gateway-proxy-protocol fail"}},
		{name: "one that sends its second version", haproxy: &haproxy{server: "send-proxy-v2"}, want: []string{"gateway-proxy-protocol fail"}},
		{name: "one that ends TLS", haproxy: &haproxy{bind: "ssl crt LB alpn h2"}, want: []string{"gateway-tls fail"}},
		{name: "one that ends TLS and begins it anew", haproxy: &haproxy{bind: "ssl crt LB alpn h2", server: "ssl verify none"}, want: []string{"gateway-tls fail"}},
		{name: "a link with a low MTU, whose ICMP is lost", way: network.Conditions{MTU: 1400}, want: []string{"gateway-mtu fail"}},
		{name: "a firewall that drops all", way: network.Conditions{Drop: true}, want: []string{"gateway-port fail"}},
		{name: "nothing again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gateway := east
			if c.haproxy != nil {
				gateway = box
				c.haproxy.start(t, lb, authority)
			}
			n.Set(only(west), only(gateway), c.way)
			defer n.Heal()
			w.apply(t, "east", gateway)
			meshtest.Eventually(t, meshtest.Patience, func() error {
				if got := w.faults(t); !slices.Equal(got, c.want) {
					return fmt.Errorf("found %q, want %q", got, c.want)
				}
				return nil
			})
		})
	}
}
