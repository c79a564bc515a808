package stream_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// says which host a test's client is on, for a service that believes it.
const fromKey = "from"

func believed(ctx context.Context, _ netip.Addr) netip.Addr {
	md, _ := metadata.FromIncomingContext(ctx)
	if all := md.Get(fromKey); len(all) == 1 {
		return netip.MustParseAddr(all[0])
	}
	return netip.Addr{}
}

// from opens a stream as if from another host.
func (s *service) from(ip string) *sidecar {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, end := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), fromKey, ip), patience)
	watch, err := pb.NewResolverClient(conn).Watch(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &sidecar{s.t, conn, watch, end}
	s.t.Cleanup(c.close)
	return c
}

func networks(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// thisHost has 10.0.0.5, and listens on its port 7400.
func thisHost() *destination.Rules {
	host := destination.NewHost(func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.IPv4(10, 0, 0, 5), Mask: net.CIDRMask(24, 32)}}, nil
	})
	return &destination.Rules{Host: host, Listeners: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:7400")}}
}

func TestAStreamRegistersItsOwnAddressAlone(t *testing.T) {
	cfg := stream.Config{Source: believed, Destinations: thisHost(), Delegates: destination.Delegates{
		{Networks: networks("203.0.113.0/24"), Apps: []string{"shop/orders", "finance/*"}, Addresses: networks("10.1.0.0/16")},
		{Networks: networks("198.51.100.1/32"), Apps: []string{"*"}},
	}}
	s := start(t, cfg, "127.0.0.1:0", selection(checkout, orders, ledger))
	for _, test := range []struct {
		from    string
		app     catalog.App
		address string
		code    codes.Code // OK: it is registered
		says    string
	}{
		{"10.0.0.7", orders, "10.0.0.7:50002", codes.OK, ""},
		{"10.0.0.7", orders, "[::ffff:10.0.0.7]:50002", codes.OK, ""},
		{"2001:db8::7", orders, "[2001:db8::7]:50002", codes.OK, ""},
		{"10.0.0.7", orders, "10.0.0.8:50002", codes.PermissionDenied, "shop/orders can't register 10.0.0.8:50002: the stream comes from 10.0.0.7"},
		{"10.0.0.7", orders, "127.0.0.1:50002", codes.PermissionDenied, "set advertise of the sidecar to 10.0.0.7"},
		{"10.0.0.7", orders, "10.0.0.5:50002", codes.PermissionDenied, "instances.delegates"},
		{"127.0.0.1", orders, "10.0.0.5:50002", codes.OK, ""}, // beside a service on loopback
		{"10.0.0.5", orders, "127.0.0.1:50002", codes.OK, ""},
		{"127.0.0.1", orders, "127.0.0.2:50002", codes.OK, ""},
		{"127.0.0.1", orders, "10.0.0.6:50002", codes.PermissionDenied, "comes from 127.0.0.1"},
		{"127.0.0.1", orders, "10.0.0.5:7400", codes.InvalidArgument, "itself listens on"},
		{"169.254.169.254", orders, "169.254.169.254:80", codes.InvalidArgument, "link-local"},
		{"203.0.113.9", orders, "10.1.2.3:50002", codes.OK, ""},
		{"203.0.113.9", ledger, "10.1.2.3:50002", codes.OK, ""},
		{"203.0.113.9", checkout, "10.1.2.3:50002", codes.PermissionDenied, "comes from 203.0.113.9"},
		{"203.0.113.9", orders, "10.2.2.3:50002", codes.PermissionDenied, "comes from 203.0.113.9"},
		{"203.0.114.9", orders, "10.1.2.3:50002", codes.PermissionDenied, "comes from 203.0.114.9"},
		{"198.51.100.1", checkout, "10.2.2.3:50002", codes.OK, ""},
	} {
		c := s.from(test.from).send(helloOf(test.app, test.address))
		if test.code == codes.OK {
			c.recv()
			if n := s.topology.Stats().Instances; n != 1 {
				t.Errorf("%s registers %s from %s: %d instances", test.app, test.address, test.from, n)
			}
			if err := c.stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			c.refused() // it has ended, and the instance with it
		} else if st := c.refused(); st.Code() != test.code || !strings.Contains(st.Message(), test.says) {
			t.Errorf("%s registers %s from %s: %v: %s; want %v: %s", test.app, test.address, test.from, st.Code(), st.Message(), test.code, test.says)
		}
	}
	if n := s.topology.Stats().Instances; n != 0 {
		t.Errorf("%d instances stand", n)
	}
}

// TestTheSourceIsThatOfTheConnection has no Source but the connection.
func TestTheSourceIsThatOfTheConnection(t *testing.T) {
	none := stream.Config{Destinations: thisHost()}
	s := startAsIs(t, none, "127.0.0.1:0")
	s.dial().send(helloOf(orders, "10.0.0.5:50002")).recv()
	if st := s.dial().send(helloOf(orders, "10.0.0.6:50002")).refused(); st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), "comes from 127.0.0.1") {
		t.Errorf("%v: %s", st.Code(), st.Message())
	}
	path := filepath.Join(t.TempDir(), "resolver.sock")
	local := startAsIs(t, none, "unix:"+path)
	local.address = "unix:" + path
	local.dial().send(helloOf(orders, "10.0.0.5:50002")).recv()
	if st := local.dial().send(helloOf(orders, "10.0.0.6:50002")).refused(); st.Code() != codes.PermissionDenied {
		t.Errorf("%v: %s", st.Code(), st.Message())
	}
}

// TestTheSidecarTakesItsAddressFromADelegate that was there before it.
func TestTheSidecarTakesItsAddressFromADelegate(t *testing.T) {
	const a = "10.0.0.7:50002"
	cfg := stream.Config{Source: believed, Delegates: destination.Delegates{{Networks: networks("203.0.113.0/24"), Apps: []string{"*"}}}}
	s := start(t, cfg, "127.0.0.1:0", selection(checkout, orders, ledger))
	s.from("203.0.113.1").send(helloOf(ledger, a)).recv()
	if d := s.topology.Resolve(checkout, ledger); d.Address != a {
		t.Errorf("%+v", d)
	}
	s.from("10.0.0.7").send(helloOf(orders, a)).recv()
	if d := s.topology.Resolve(checkout, orders); d.Address != a {
		t.Errorf("%+v", d)
	}
	if d := s.topology.Resolve(checkout, ledger); d.Address != "" {
		t.Errorf("%+v", d)
	}
}

// TestADelegateTakesNothing lets a delegate claim what another app has registered itself.
func TestADelegateTakesNothing(t *testing.T) {
	const a = "10.0.0.7:50002"
	cfg := stream.Config{
		Source: believed, Snapshot: filepath.Join(t.TempDir(), "instances.json"), RejoinTimeout: patience,
		Delegates: destination.Delegates{{Networks: networks("203.0.113.0/24"), Apps: []string{"*"}}},
	}
	s := start(t, cfg, "127.0.0.1:0", selection(checkout, orders, ledger))
	holds := func(what string, s *service) {
		t.Helper()
		if d := s.topology.Resolve(checkout, orders); d.Address != a {
			t.Errorf("%s: %s is at %q (%s), want %s", what, orders, d.Address, d.Reason, a)
		}
		if d := s.topology.Resolve(checkout, ledger); d.Address == a {
			t.Errorf("%s: %s has the address", what, ledger)
		}
		callers, _ := s.topology.Callers().Load()
		if who, _ := callers.Get(netip.MustParseAddr("10.0.0.7")); who.App != orders || who.Shared {
			t.Errorf("%s: %+v asks from the address, want %s", what, who, orders)
		}
	}
	victim := s.from("10.0.0.7").send(helloOf(orders, a))
	victim.recv()
	holds("at first", s)
	thief := s.from("203.0.113.1").send(helloOf(ledger, a)).refused()
	if thief.Code() != codes.PermissionDenied || !strings.Contains(thief.Message(), "another app's sidecar has registered that address itself") || strings.Contains(thief.Message(), "orders") {
		t.Errorf("a delegate that claims it: %v: %s; want PermissionDenied, and not whose it is", thief.Code(), thief.Message())
	}
	holds("another app claims it", s)
	s.from("203.0.113.1").send(helloOf(ledger, "10.0.0.7:6000")).recv()
	holds("and another port there", s)
	s.from("203.0.113.1").send(helloOf(orders, a)).recv()
	holds("the app itself by another", s)
	victim.send(drainRequest()).until(func(m *pb.WatchResponse) bool { return m.Drained }) // its stream still lives
	s.from("10.0.0.7").send(helloOf(orders, a)).recv()
	holds("it has come anew", s)

	s.stop()
	text, err := os.ReadFile(cfg.Snapshot)
	if err != nil || strings.Count(string(text), `"unverified":true`) != 2 {
		t.Errorf("the snapshot is\n%s (%v)\nwant two that are unverified", text, err)
	}
	holds("after a restart", start(t, cfg, "127.0.0.1:0", selection(checkout, orders, ledger)))
}

// TestTheLaterOfOneHostWins holds that two apps on one host may hand an address over.
func TestTheLaterOfOneHostWins(t *testing.T) {
	s := start(t, stream.Config{Source: believed}, "127.0.0.1:0", selection(checkout, orders, ledger))
	first := s.from("10.0.0.7").send(helloOf(orders, "10.0.0.7:50002"))
	first.recv()
	s.from("10.0.0.7").send(helloOf(ledger, "10.0.0.7:50002")).recv()
	if st := first.refused(); st.Code() != codes.Aborted {
		t.Errorf("%v: %s", st.Code(), st.Message())
	}
	if d := s.topology.Resolve(checkout, ledger); d.Address != "10.0.0.7:50002" {
		t.Errorf("%+v", d)
	}
}

func TestSeatsAreBounded(t *testing.T) {
	cfg := stream.Config{
		Source: believed, MaxInstances: 3, MaxStreams: 2,
		Delegates: destination.Delegates{{Networks: networks("203.0.113.0/24"), Apps: []string{"shop/orders"}, Most: 5}},
	}
	s := start(t, cfg, "127.0.0.1:0")
	refused := func(what, from string, req *pb.WatchRequest, says string) {
		t.Helper()
		if st := s.from(from).send(req).refused(); st.Code() != codes.ResourceExhausted || !strings.Contains(st.Message(), says) {
			t.Errorf("%s: %v: %s; want ResourceExhausted: %s", what, st.Code(), st.Message(), says)
		}
	}
	at := func(ip string, port int) *pb.WatchRequest { return helloOf(orders, fmt.Sprintf("%s:%d", ip, port)) }
	var last *sidecar
	for port := range 3 {
		last = s.from("10.0.0.7").send(at("10.0.0.7", 1+port))
		last.recv()
	}
	refused("one instance too many", "10.0.0.7", at("10.0.0.7", 9), "shop/orders has 3 instances registered from 10.0.0.7")
	s.from("10.0.0.8").send(at("10.0.0.8", 9)).recv()             // from elsewhere
	s.from("10.0.0.7").send(helloOf(ledger, "10.0.0.7:9")).recv() // of another app
	again := s.from("10.0.0.7").send(at("10.0.0.7", 3))           // the same instance
	if st := last.refused(); st.Code() != codes.Aborted {
		t.Errorf("%v: %s", st.Code(), st.Message())
	}
	again.recv()
	for range 2 {
		s.from("10.0.0.7").send(helloOf(orders, "")).recv()
	}
	refused("one watcher too many", "10.0.0.7", helloOf(orders, ""), "2 streams from 10.0.0.7 that register no instance")
	if err := again.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	again.refused()
	s.from("10.0.0.7").send(at("10.0.0.7", 9)).recv() // there is room again
	for port := range 5 {
		s.from("203.0.113.1").send(at("10.5.0.1", 1+port)).recv()
	}
	refused("too many of a delegate", "203.0.113.1", at("10.5.0.1", 9), "5 instances registered from 203.0.113.1")
}

func TestTheDefaultsOfSeats(t *testing.T) {
	s := start(t, stream.Config{Source: believed}, "127.0.0.1:0")
	for port := range stream.DefaultMaxInstances {
		s.from("10.0.0.7").send(helloOf(orders, fmt.Sprintf("10.0.0.7:%d", 1+port))).recv()
	}
	if st := s.from("10.0.0.7").send(helloOf(orders, "10.0.0.7:1000")).refused(); st.Code() != codes.ResourceExhausted {
		t.Errorf("one more than %d instances: %v", stream.DefaultMaxInstances, st)
	}
	if n := s.topology.Stats().Instances; n != 64 {
		t.Errorf("%d instances stand, want 64", n)
	}
	for range 8 {
		s.from("10.0.0.7").send(helloOf(orders, "")).recv()
	}
	if st := s.from("10.0.0.7").send(helloOf(orders, "")).refused(); st.Code() != codes.ResourceExhausted {
		t.Errorf("a ninth stream: %v", st)
	}
}

// TestWhyAnInstanceIsNotExported holds what an operator is told.
func TestWhyAnInstanceIsNotExported(t *testing.T) {
	s := start(t, stream.Config{Source: believed, Destinations: thisHost()}, "127.0.0.1:0",
		selection(checkout, orders), &catalog.AppExport{App: orders, Allow: []catalog.Allow{{}}})
	s.from("127.0.0.1").send(helloOf(orders, "127.0.0.1:50002")).recv()
	d := s.explain(checkout, orders)
	if d.Address != "127.0.0.1:50002" || !strings.Contains(d.Routes[0].Reason, "not exported: address 127.0.0.1:50002 is loopback") {
		t.Errorf("%+v", d)
	}
	s.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{{Kind: catalog.KindAppExport, Namespace: "shop", Name: "orders"}}}})
	if d := s.explain(checkout, orders); strings.Contains(d.Routes[0].Reason, "exported") {
		t.Errorf("%+v", d)
	}
}

// explain is what an operator is told.
func (s *service) explain(caller, app catalog.App) *pb.Decision {
	s.t.Helper()
	return s.ask(&pb.ResolveRequest{
		Caller: &pb.App{Namespace: caller.Namespace, Id: caller.ID}, App: &pb.App{Namespace: app.Namespace, Id: app.ID},
	})
}

// ask makes a lookup as an operator.
func (s *service) ask(req *pb.ResolveRequest) *pb.Decision {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	d, err := pb.NewResolverClient(conn).Resolve(s.t.Context(), req)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}
