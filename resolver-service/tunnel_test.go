package resolverservice

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// inYAML is a root in a flow of YAML.
func inYAML(ca *identitytest.CA) string { return strings.ReplaceAll(string(ca.PEM()), "\n", `\n`) }

// dialsOut is a Cluster object of a cluster that is called by its tunnels.
func dialsOut(name string, ca *identitytest.CA) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec: {tunnel: accept, staleAfter: 4s, trust: {domain: %s, roots: \"%s\"}}\n", name, identitytest.TrustDomain, inYAML(ca))
}

// dialled is a Cluster object of one that is dialled.
func dialled(name string, gateway net.Addr, ca *identitytest.CA) string {
	return strings.Replace(trusting(name, gateway, ca.PEM()), "{gateways", "{tunnel: dial, gateways", 1)
}

// behindNAT is a configuration without a listener that others reach.
func behindNAT(t *testing.T, cluster string, ca *identitytest.CA) *Config {
	cfg := configOf(t, cluster, ca)
	cfg.Listen.Gateway = ""
	return cfg
}

// through echoes by a connection to an app at a cluster's gateway.
func through(gateway net.Addr, name string) (*tls.Conn, error) {
	d := &net.Dialer{Timeout: patience}
	conn, err := tls.DialWithDialer(d, "tcp", gateway.String(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	return conn, echoes(conn)
}

func echoes(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 5))
	return err
}

const ordersInNorth = "orders.shop.north.isthmus.internal"

func TestAClusterThatOnlyDialsOut(t *testing.T) {
	westCA, northCA := identitytest.NewCA(t), identitytest.NewCA(t)
	west, north := start(t, configOf(t, "west", westCA), westCA), start(t, behindNAT(t, "north", northCA), northCA)
	west.apply(dialsOut("north", northCA) + "---\n" + selectsOrders + "---\n" + export("north"))
	north.apply(dialled("west", west.Addr("gateway"), westCA) + "---\n" + export("west") + "---\n" + selectsOrders)
	secret := catalog.App{Namespace: "shop", ID: "secret"}
	north.sidecar(orders, tlsEcho(t, northCA))
	north.sidecar(secret, tlsEcho(t, northCA))
	gateway := west.Addr("gateway")
	port := fmt.Sprint(gateway.(*net.TCPAddr).Port)
	west.within("orders answered from north, by west's own gateway", func() bool {
		return west.resolve(checkout, orders) == "ok "+ordersInNorth+":"+port
	})
	held, err := through(gateway, ordersInNorth)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	west.within("north's own word that it hears west", func() bool { return west.peer("north").GetHears() == "connected" })
	for who, tunnel := range map[string]string{
		"west":  west.peer("north").GetTunnel().String(),
		"north": north.peer("west").GetTunnel().String(),
	} {
		if !strings.Contains(tunnel, "open:1") {
			t.Errorf("%s shows %s", who, tunnel)
		}
	}
	for _, name := range []string{"secret.shop.north.isthmus.internal", "orders.shop.south.isthmus.internal", "_resolver.shop.north.isthmus.internal"} {
		if _, err := through(gateway, name); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s by a tunnel: %v", name, err)
		}
	}

	if err := echoes(held); err != nil {
		t.Error(err)
	}
	west.apply(strings.Replace(dialsOut("north", northCA), "tunnel: accept, ", "", 1))
	west.within("no way to north once its object lets it dial no more", func() bool { return west.resolve(checkout, orders) != "ok "+ordersInNorth+":"+port })
	if err := echoes(held); err == nil {
		t.Error("a tunnel outlives its object")
	}
	north.within("why", func() bool {
		return strings.Contains(north.peer("west").GetTunnel().GetError(), `does not have "tunnel: accept"`)
	})
	west.apply(dialsOut("north", northCA))
	west.within("orders answered again", func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok ") })
	if again, err := through(gateway, ordersInNorth); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
}

// tunnelTo says hello at a gateway's reserved name with a certificate, and returns what is answered.
func tunnelTo(gateway net.Addr, cert identitytest.Pair) (*v1alpha1.TunnelWelcome, *tls.Conn, error) {
	pair, err := tls.X509KeyPair(cert.Cert, cert.Key)
	if err != nil {
		return nil, nil, err
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", gateway.String(), &tls.Config{
		ServerName: "_tunnel.west.isthmus.internal", InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
	})
	if err != nil {
		return nil, nil, err
	}
	conn.SetDeadline(time.Now().Add(patience))
	hello, _ := proto.Marshal(&v1alpha1.TunnelHello{Process: "a test"})
	if _, err := conn.Write(append([]byte{0, byte(len(hello))}, hello...)); err != nil {
		return nil, nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, nil, err
	}
	text := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, text); err != nil {
		return nil, nil, err
	}
	m := &v1alpha1.TunnelWelcome{}
	return m, conn, proto.Unmarshal(text, m)
}

func TestATunnelIsOfItsClustersServiceAlone(t *testing.T) {
	westCA, northCA, southCA := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	west := start(t, configOf(t, "west", westCA), westCA)
	west.apply(dialsOut("north", northCA) + "---\n" + strings.Replace(dialsOut("south", southCA), "tunnel: accept, ", "", 1))
	gateway, service := west.Addr("gateway"), identity.ServiceApp("", "north")
	for who, cert := range map[string]identitytest.Pair{
		"an app of north":  northCA.Issue(orders),
		"north's operator": northCA.Issue(identity.CLIApp("")),
		"a service of north's name, by south's root": southCA.Issue(service),
		"a service of south's name, by north's root": northCA.Issue(identity.ServiceApp("", "south")),
		"a service of north's name, by west's root":  westCA.Issue(service),
		"a cluster that nobody knows":                northCA.Issue(identity.ServiceApp("", "elsewhere")),
		"west itself":                                westCA.Issue(identity.ServiceApp("", "west")),
	} {
		if m, _, err := tunnelTo(gateway, cert); err == nil {
			t.Errorf("%s has brought a tunnel: %v", who, m)
		}
	}
	if m, _, err := tunnelTo(gateway, southCA.Issue(identity.ServiceApp("", "south"))); err != nil || !strings.Contains(m.GetRefused(), `does not have "tunnel: accept"`) {
		t.Errorf("a peer that may not: %v, %v", m, err)
	}
	m, conn, err := tunnelTo(gateway, northCA.Issue(service))
	if err != nil || m.GetRefused() != "" || len(m.GetId()) == 0 {
		t.Fatalf("north itself: %v, %v", m, err)
	}
	defer conn.Close()
	west.within("the tunnel", func() bool { return west.peer("north").GetTunnel().GetOpen() == 1 })
	west.apply(dialsOut("north", southCA)) // the trust in it is another
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a tunnel outlives the trust in its cluster")
	}
	west.within("its end", func() bool { return west.peer("north").GetTunnel().GetOpen() == 0 })
}

// A cluster of two replicas that a third cluster dials. Callers go on by the gateway of the other
// while one is rolled, as a sidecar does.
func TestReplicasThatAreRolledHaveTunnels(t *testing.T) {
	t.Parallel()
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	westCA, northCA := identitytest.NewCA(t), identitytest.NewCA(t)
	var west []*replicaProcess
	for _, name := range []string{"w1", "w2"} {
		p := newReplica(t, "west", name, etcd.Addr(), "")
		p.certify("west", westCA)
		p.rejoinAfterOutage = "100ms"
		p.start()
		west = append(west, p)
	}
	west[0].apply(dialsOut("north", northCA))
	north := start(t, behindNAT(t, "north", northCA), northCA)
	object := strings.Replace(dialled("west", tcpAddr(t, west[0].gateway), westCA), "gateways: [", fmt.Sprintf("gateways: [{address: '%s'}, ", west[1].gateway), 1)
	north.apply(object + "---\n" + export("west"))
	north.sidecar(orders, tlsEcho(t, northCA))
	north.within("a tunnel to each", func() bool { return north.peer("west").GetTunnel().GetOpen() == 2 })
	call := func(first int) (err error) {
		for n := range west {
			var conn *tls.Conn
			if conn, err = through(tcpAddr(t, west[(first+n)%len(west)].gateway), ordersInNorth); err == nil {
				return conn.Close()
			}
		}
		return err
	}
	for _, p := range west {
		north.within("calls by "+p.name, func() bool {
			conn, err := through(tcpAddr(t, p.gateway), ordersInNorth)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
	stop, calls, failed := make(chan struct{}), 0, []error(nil)
	var calling sync.WaitGroup
	calling.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			calls++
			if err := call(n); err != nil {
				failed = append(failed, err)
			}
		}
	})
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, p := range west {
			p.end(sig)
			time.Sleep(500 * time.Millisecond)
			p.start()
			north.within("a tunnel to the replica that is back", func() bool { return north.peer("west").GetTunnel().GetOpen() == 2 })
		}
	}
	close(stop)
	calling.Wait()
	t.Logf("both replicas rolled, and killed, one by one: %d calls, %d failed", calls, len(failed))
	for _, err := range failed[:min(len(failed), 5)] {
		t.Error(err)
	}
}

func tcpAddr(t *testing.T, address string) net.Addr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
