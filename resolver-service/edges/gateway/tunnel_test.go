package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/tunnel/mux"
)

const ordersInNorth = "orders.shop.north.isthmus.internal"

// streams is a listener of the streams of a tunnel.
type streams struct {
	net.Listener // none
	arrived      chan *mux.Stream
	closed       chan struct{}
}

func (s *streams) Accept() (net.Conn, error) {
	select {
	case st := <-s.arrived:
		return st, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *streams) Close() error   { return nil }
func (s *streams) Addr() net.Addr { return &net.TCPAddr{} }

// tunnelled is a gateway of cluster east, and one of cluster north that it reaches by a tunnel.
func tunnelled(t *testing.T, cfg Config, apps map[string][]string) (gw *running, cut func()) {
	t.Helper()
	l := listen(t)
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	arrive := &streams{arrived: make(chan *mux.Stream, 100), closed: make(chan struct{})}
	opener := mux.New(here, mux.Config{Streams: 1000, Stall: patience})
	accepter := mux.New(there, mux.Config{Streams: 1000, Stall: patience, Accept: func(s *mux.Stream) { arrive.arrived <- s }})
	go opener.Run()
	go accepter.Run()

	north := exports(1, apps)
	north.Cluster = "north"
	var table live.Value[*catalog.GatewayTable]
	table.Store(north)
	far, err := New(Config{Table: &table, Logger: slog.New(slog.DiscardHandler), DrainTimeout: 50 * time.Millisecond, Peers: tlsPeers(t, "north's service")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- far.Serve(ctx, arrive) }()
	t.Cleanup(func() {
		cancel()
		close(arrive.closed)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		opener.Close()
		accepter.Close()
		<-opener.Done()
		<-accepter.Done()
	})

	cfg.OpenTunnel = func(context.Context, string) (relay.Conn, error) {
		s, err := opener.Open()
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	east := exports(1, map[string][]string{"orders": {tlsBackend(t, "east's own")}})
	east.Tunnels = map[string]catalog.Tunnels{"north": {Apps: catalog.NewTable([]catalog.Edit[struct{}]{{App: catalog.App{Namespace: "shop", ID: "orders"}}}), Heard: true}}
	return serve(t, cfg, east), opener.Close
}

func TestATunnelledAppIsReachedByItsFullNameAlone(t *testing.T) {
	gw, _ := tunnelled(t, Config{}, map[string][]string{"orders": {tlsBackend(t, "north's")}, "ledger": {tlsBackend(t, "a secret")}})
	for host, want := range map[string]string{ordersInNorth: "north's", "i00000000." + ordersInNorth: "", "0." + ordersInNorth: "north's", ordersHost: "east's own", "orders.shop.isthmus.internal": "east's own"} {
		name, conn, err := call(t, gw.addr, host)
		if name != want {
			t.Errorf("%s leads to %q, %v; want %q", host, name, err, want)
		}
		if conn != nil {
			conn.Close()
		}
	}
	for _, host := range []string{"ledger.shop.north.isthmus.internal", "orders.shop.south.isthmus.internal", "_tunnel.north.isthmus.internal", "_link.north.isthmus.internal", "_resolver.north.isthmus.internal"} {
		if name, _, err := call(t, gw.addr, host); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s leads to %q, %v", host, name, err)
		}
	}
	if got := gw.metric("isthmus_gateway_tunnelled_bytes_total", "direction", "to_client"); got == 0 {
		t.Error("no bytes of a tunnel are counted")
	}
}

// A stream ends as the connection does that it carries: each direction by itself, or both by a reset.
func TestEndsPassByATunnel(t *testing.T) {
	first := hello(ordersInNorth)
	reached, heard := make(chan struct{}, 1), make(chan error, 1)
	app := backend(t, func(c *net.TCPConn) {
		_, err := io.ReadFull(c, make([]byte, len(first)))
		reached <- struct{}{}
		if err == nil {
			_, err = io.Copy(io.Discard, c)
		}
		if err == nil {
			_, err = c.Write([]byte("the rest")) // after the client has ended its direction
		}
		heard <- err
	})
	gw, cut := tunnelled(t, Config{}, map[string][]string{"orders": {app}})

	conn := dialTCP(t, gw.addr)
	conn.Write(first)
	conn.CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != "the rest" || err != nil {
		t.Errorf("after the client's end: %q, %v", got, err)
	}
	<-reached
	if err := <-heard; err != nil {
		t.Error(err)
	}
	conn = dialTCP(t, gw.addr)
	conn.Write(first)
	<-reached
	relay.Reset(conn)
	if err := <-heard; !isReset(err) {
		t.Errorf("the app saw %v; want a reset", err)
	}
	conn = dialTCP(t, gw.addr)
	conn.Write(first)
	<-reached
	cut()
	if _, err := conn.Read(make([]byte, 1)); !isReset(err) {
		t.Errorf("the client saw %v when the tunnel was lost; want a reset", err)
	}
	<-heard
}

func TestWithoutATunnelCallersAreTold(t *testing.T) {
	gw, cut := tunnelled(t, Config{}, nil)
	cut()
	_, _, err := call(t, gw.addr, ordersInNorth)
	if err == nil || !strings.Contains(err.Error(), "internal error") || gw.refused(noTunnel) != 1 {
		t.Errorf("%v, and %d refusals; want one that is temporary", err, gw.refused(noTunnel))
	}
}

func TestASourceFillsNoTunnel(t *testing.T) {
	gw, _ := tunnelled(t, Config{MaxConnections: 100, MaxPerSource: 8}, map[string][]string{"orders": {tlsBackend(t, "north's")}})
	var held []*tls.Conn
	for range 4 {
		_, conn, err := call(t, gw.addr, ordersInNorth)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	if _, _, err := call(t, gw.addr, ordersInNorth); err == nil || gw.refused(sourceShare) != 1 {
		t.Errorf("a source has more than half of its share in a tunnel: %v", err)
	}
	if _, _, err := call(t, gw.addr, ordersHost); err != nil {
		t.Errorf("the rest of its share: %v", err)
	}
	for _, conn := range held {
		if err := errors.Join(conn.Close()); err != nil {
			t.Error(err)
		}
	}
}

// After a restart, a gateway does not know yet what such a cluster exports.
func TestCallersWaitForAClusterThatIsAboutToBeHeard(t *testing.T) {
	gw, _ := tunnelled(t, Config{}, map[string][]string{"orders": {tlsBackend(t, "north's")}})
	heard, _ := gw.table.Load()
	unheard := *heard
	unheard.Tunnels = map[string]catalog.Tunnels{"north": {}}
	gw.table.Store(&unheard)
	waits := make(chan string, 1)
	go func() {
		name, conn, err := call(t, gw.addr, ordersInNorth)
		if err == nil {
			conn.Close()
		}
		waits <- name
	}()
	eventually(t, "it is waiting", func() bool { return gw.metric("isthmus_gateway_connections_open") == 1 })
	gw.table.Store(heard)
	if name := <-waits; name != "north's" {
		t.Errorf("it got %q", name)
	}
}
