package hostile

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// hostilePeer is the resolver service of cluster east, which says of its exports what it wants.
type hostilePeer struct {
	v1alpha1.UnimplementedPeeringServer
	exports []*v1alpha1.Export
}

// Exports tells them once, and then echoes pings.
func (p *hostilePeer) Exports(to grpc.BidiStreamingServer[v1alpha1.ExportsRequest, v1alpha1.ExportsResponse]) error {
	for first := true; ; first = false {
		req, err := to.Recv()
		if err != nil {
			return err
		}
		m := &v1alpha1.ExportsResponse{Cluster: "east", Revision: 1, Hears: "connected", Echo: req.Ping}
		if first {
			m.Put = p.exports
		}
		if err := to.Send(m); err != nil {
			return err
		}
	}
}

// Renew echoes pings.
func (p *hostilePeer) Renew(to grpc.BidiStreamingServer[v1alpha1.RenewRequest, v1alpha1.RenewResponse]) error {
	for {
		req, err := to.Recv()
		if err != nil {
			return err
		}
		if err := to.Send(&v1alpha1.RenewResponse{Cluster: "east", Hears: "connected", Echo: req.Ping}); err != nil {
			return err
		}
	}
}

// TestM7APeerOnTheSameNetworkNamesNoLocalAddress: a hostile peer, whose instances are dialled
// directly, says that they are at addresses of the caller's own machine, or at none.
func TestM7APeerOnTheSameNetworkNamesNoLocalAddress(t *testing.T) {
	s := newStage(t, map[string]any{"network": "net-1"})
	wrong := []string{"0.0.0.0:22", "169.254.169.254:80", "[fe80::1]:80", "224.0.0.1:80", "255.255.255.255:80", s.Resolver, s.Admin}
	const good = "198.51.100.7:50002"
	peer := &hostilePeer{}
	add := func(id string, addresses ...string) {
		peer.exports = append(peer.exports, &v1alpha1.Export{
			App: wire.App(app(id)), Ready: uint32(len(addresses)), Digest: uint64(len(peer.exports) + 1), Addresses: addresses,
			Allow: []*v1alpha1.Allow{{Cluster: "west"}},
		})
	}
	endpoints := []string{"app: good"}
	add("good", good)
	for n, address := range wrong {
		add(fmt.Sprint("wrong-", n), address)
		endpoints = append(endpoints, fmt.Sprint("app: wrong-", n))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(s.peer(t, "east").tls(""))))
	v1alpha1.RegisterPeeringServer(server, peer)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until Stop
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	s.apply(t, strings.TrimSuffix(meshtest.Cluster("east", l.Addr().String()), "\n")+"\n  network: net-1\n", meshtest.Selection("shop", "checkout", endpoints...))

	operator := certified(t, s.authority, westDomain, identity.CLIApp("")).client(t, s.Resolver, "")
	address := func(id string) (string, error) {
		d, err := v1alpha1.NewResolverClient(operator).Resolve(meshtest.Within(t, meshtest.Attempt), &v1alpha1.ResolveRequest{
			Caller: wire.App(app("checkout")), App: wire.App(app(id)),
		})
		return d.GetAddress(), err
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		got, err := address("good")
		if err == nil && got != good {
			err = fmt.Errorf("a good export leads to %q", got)
		}
		return err
	})
	for n, bad := range wrong {
		t.Run(bad, func(t *testing.T) {
			if got, err := address(fmt.Sprint("wrong-", n)); err != nil || got == bad {
				t.Errorf("callers are led to %q (%v)", got, err)
			}
		})
	}
}
