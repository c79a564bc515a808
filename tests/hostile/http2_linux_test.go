package hostile

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// rawHTTP2 is an HTTP/2 client that keeps to no rule.
type rawHTTP2 struct {
	net.Conn
	*http2.Framer
	next uint32
}

// newRawHTTP2 begins a connection whose streams may be sent so many bytes.
func newRawHTTP2(conn net.Conn, window uint32) (*rawHTTP2, error) {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	c := &rawHTTP2{conn, http2.NewFramer(conn, conn), 1}
	return c, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
}

// call begins a call of a gRPC method.
func (c *rawHTTP2) call(method string) (stream uint32, err error) {
	stream, c.next = c.next, c.next+2
	var block bytes.Buffer
	encode := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", method}, {":authority", "west"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := encode.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return 0, err
		}
	}
	return stream, c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
}

// helloOf is the first message of a stream, with so many entries that it says it knows.
func helloOf(a catalog.App, known int) *v1alpha1.WatchRequest {
	h := &v1alpha1.Hello{App: wire.App(a), Revision: 1}
	for n := range known {
		h.Known = append(h.Known, &v1alpha1.Known{App: &v1alpha1.App{Namespace: "elsewhere", Id: fmt.Sprintf("app-%d", n)}, Digest: uint64(n)})
	}
	return &v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: h}}
}

// mallory is an attacker with a certificate of its own, which is good: a compromised sidecar,
// or the resolver service of a hostile peer.
func (a *attack) mallory(s *stage) (as caller, serverName string) {
	if a.peer {
		return s.peer(a.t, "north").at(a.from(0).from.String()), resolverName
	}
	return s.own(a.t, "mallory").at(a.from(0).from.String()), ""
}

func (a *attack) serverName() string {
	if a.peer {
		return resolverName
	}
	return ""
}

// method is the one that is called of a door.
func (a *attack) method() string {
	switch {
	case a.peer:
		return v1alpha1.Peering_Renew_FullMethodName
	case a.xds:
		return discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName
	}
	return v1alpha1.Resolver_Watch_FullMethodName
}

// raw opens connections of mallory's that keep to no rule.
func (a *attack) raw(s *stage, count int, window uint32, do func(*rawHTTP2)) {
	a.t.Helper()
	as, serverName := a.mallory(s)
	for range count {
		conn, err := as.dialTLS(meshtest.Within(a.t, meshtest.Attempt), a.address, serverName, "h2")
		if err != nil {
			a.refused.Add(1)
			continue
		}
		a.mu.Lock()
		a.conns = append(a.conns, conn.NetConn()) // Close of TLS would wait for what is never read
		a.mu.Unlock()
		if window == 0 {
			small(conn)
		}
		c, err := newRawHTTP2(conn, window)
		if err != nil {
			a.refused.Add(1)
			continue
		}
		do(c)
	}
}

// packets sends packets from many addresses.
func (a *attack) packets(count int, text []byte) {
	a.t.Helper()
	for n := range count {
		if n%100 == 0 {
			time.Sleep(time.Millisecond) // so that the kernel does not drop them all
		}
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.from(n%64).from, 0))
		conn, err := net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(a.address)))
		if err != nil {
			a.t.Fatal(err)
		}
		conn.Write(text)
		conn.Close()
	}
}
