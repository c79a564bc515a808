package xds

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// open is how a program with a bootstrap dials a target.
func open(bootstrap []byte, target string) (*grpc.ClientConn, error) {
	builder, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		return nil, err
	}
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithResolvers(builder))
}

// dial opens a target with a bootstrap.
func (m *mesh) dial(bootstrap []byte, target string) *grpc.ClientConn {
	m.t.Helper()
	conn, err := open(bootstrap, target)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	return conn
}

// answeredBy calls an app, and returns the address that answered.
func answeredBy(ctx context.Context, conn *grpc.ClientConn) (address string, err error) {
	ctx, cancel := context.WithTimeout(ctx, meshtest.Attempt)
	defer cancel()
	var from peer.Peer
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&from)); err != nil {
		return "", err
	}
	return from.Addr.String(), nil
}

// callerVariable has the test binary call a target, and print the address that answers: what it
// has of gRPC's settings it has from its environment, as an app does.
const callerVariable = "ISTHMUS_TEST_XDS_TARGET"

func call(target string) error {
	bootstrap, err := os.ReadFile(os.Getenv("GRPC_XDS_BOOTSTRAP"))
	if err != nil {
		return err
	}
	conn, err := open(bootstrap, target)
	if err != nil {
		return err
	}
	defer conn.Close()
	var address string
	for end := time.Now().Add(meshtest.Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if address, err = answeredBy(context.Background(), conn); err == nil {
			fmt.Println(address)
			return nil
		}
	}
	return err
}

// from tells that calls come to be answered by these addresses, each of them, and by no other: what is
// back takes some of them at first.
func (m *mesh) from(conn *grpc.ClientConn, want ...string) {
	m.t.Helper()
	answered := map[string]bool{}
	meshtest.Eventually(m.t, meshtest.Patience, func() error {
		for range 100 { // in a row: not now and then
			address, err := answeredBy(m.t.Context(), conn)
			if err != nil || !slices.Contains(want, address) {
				clear(answered) // it was so until now
				return fmt.Errorf("answered by %q, %w; want %v", address, err, want)
			}
			answered[address] = true
		}
		if len(answered) < len(want) {
			return fmt.Errorf("answered by %v, want %v", answered, want)
		}
		return nil
	})
}

// fails tells that calls end with an error that has these words.
func (m *mesh) fails(conn *grpc.ClientConn, words ...string) {
	m.t.Helper()
	meshtest.Eventually(m.t, meshtest.Patience, func() error {
		address, err := answeredBy(m.t.Context(), conn)
		if status.Code(err) != codes.Unavailable {
			return fmt.Errorf("answered by %q: %v; want an error with %q", address, err, words)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				return fmt.Errorf("%q is not in: %w", w, err)
			}
		}
		return nil
	})
}

func TestGRPCGoCallsBothClusters(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.apply(m.west, m.selection("app: orders"))
	m.apply(m.east, meshtest.Export("shop", "orders", "west"), instance(orders, "east-1", m.server(orders)))
	conn := m.dial(m.bootstrap(checkout), "xds:///orders.shop")
	m.from(conn, m.east.Gateway)

	// Instances in this cluster come first, and share the calls.
	local := []string{m.server(orders), m.server(orders)}
	m.apply(m.west, instance(orders, "west-1", local[0]), instance(orders, "west-2", local[1]))
	m.from(conn, local...)
	east := m.dial(m.bootstrap(checkout), "xds:///orders.shop.east")
	m.from(east, m.east.Gateway)

	// When they go the other cluster has the calls, until they are back.
	m.remove(m.west, orders, "west-1", "west-2")
	m.from(conn, m.east.Gateway)
	m.apply(m.west, instance(orders, "west-2", local[1]))
	m.from(conn, local[1])

	// Weights share calls out between clusters.
	m.apply(m.west, m.selection("app: orders, routes: [{cluster: local, weight: 3}, {cluster: east, weight: 1}]"))
	const calls = 400
	meshtest.Eventually(t, meshtest.Patience, func() error { // gRPC calls who is connected until all are
		abroad := 0
		for range calls {
			address, err := answeredBy(t.Context(), conn)
			if err != nil || address != local[1] && address != m.east.Gateway {
				t.Fatal(address, err)
			}
			if address == m.east.Gateway {
				abroad++
			}
		}
		if abroad < calls*15/100 || abroad > calls*35/100 { // five standard deviations around a quarter
			return fmt.Errorf("east answered %d of %d calls, want a quarter", abroad, calls)
		}
		return nil
	})

	// What the selection no longer holds is gone.
	m.apply(m.west, m.selection())
	m.fails(conn, `"orders.shop" of type "ListenerResource" has been removed`)
	m.fails(east, `"orders.shop.east" of type "ListenerResource" has been removed`)
}

// Another app with the same name and another certificate is nobody's callee.
func TestGRPCGoChecksWhoAnswers(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.apply(m.west, m.selection("app: orders"), instance(orders, "west-1", m.server(ledger)))
	conn := m.dial(m.bootstrap(checkout), "xds:///orders.shop")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		from, err := answeredBy(t.Context(), conn)
		if err == nil {
			t.Fatalf("ledger at %s answered for orders", from)
		}
		if !strings.Contains(err.Error(), "do not match any of the accepted SANs") {
			return err
		}
		return nil
	})
}

// An older gRPC sends no server name. It gets through by a listener that leads to one app.
func TestGRPCGoWithoutServerNames(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.apply(m.west, m.selection("app: orders", "app: ledger"))
	m.apply(m.east, meshtest.Export("shop", "orders", "west"), meshtest.Export("shop", "ledger", "west"),
		instance(orders, "east-1", m.server(orders)), instance(ledger, "east-2", m.server(ledger)))
	call := func(bootstrap []byte) (string, error) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(meshtest.Within(t, meshtest.Patience), self)
		cmd.Env = append(os.Environ(), callerVariable+"=xds:///orders.shop", "GRPC_XDS_BOOTSTRAP="+m.file("nameless.json", bootstrap), sendNames+"=false")
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if from, err := call(m.nameless(m.bootstrap(checkout))); err != nil || from != m.ordersAlone {
		t.Errorf("answered by %s, %v; want %s, which leads to orders alone", from, err, m.ordersAlone)
	}
}

// Who shows the wrong certificate, or names another app, is told what is wrong and what to do.
func TestGRPCGoIsToldWhatIsWrong(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.apply(m.west, m.selection("app: orders"), instance(orders, "west-1", m.server(orders)))
	other, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	strangers := m.certificateBy(other, "other", checkout)
	ours, theirs := m.certificate(checkout), m.file("other/ca.crt", other.Anchors())
	change := func(from, to string) []byte {
		text := strings.ReplaceAll(string(m.bootstrap(checkout)), from, to)
		if !json.Valid([]byte(text)) {
			t.Fatal(text)
		}
		return []byte(text)
	}
	for name, c := range map[string]struct {
		bootstrap []byte
		target    string
		words     []string
	}{
		"an app that is not selected": {m.bootstrap(checkout), "xds:///ledger.shop", []string{`"ledger.shop" of type "ListenerResource" has been removed`}},
		"a node id of another app": {change(`"shop/checkout"`, `"shop/ledger"`), "xds:///orders.shop",
			[]string{`the node id is "shop/ledger"`, `the certificate is that of shop/checkout`, `write "id": "shop/checkout" into the bootstrap`}},
		"a node id that is no app": {change(`"shop/checkout"`, `"checkout"`), "xds:///orders.shop", []string{`write "id": "shop/checkout" into the bootstrap`}},
		"the wrong roots":          {change(ours+"/ca.crt", theirs), "xds:///orders.shop", []string{"certificate signed by unknown authority"}},
		"another listener":         {change(m.xds, m.west.Resolver), "xds:///orders.shop", []string{"cannot validate certificate for 127.0.0.1"}},
		"a listener without TLS":   {change(m.xds, m.west.Admin), "xds:///orders.shop", []string{"first record does not look like a TLS handshake"}},
		"a stranger's certificate": {change(ours+"/tls", strangers+"/tls"), "xds:///orders.shop", []string{"remote error: tls: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := open(c.bootstrap, c.target)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			of := *m
			of.t = t
			of.fails(conn, c.words...)
		})
	}
}
