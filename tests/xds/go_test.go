package xds

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// dial is how an app that has a bootstrap dials a target.
func (m *mesh) dial(app catalog.App, target string) *grpc.ClientConn {
	m.t.Helper()
	builder, err := xds.NewXDSResolverWithConfigForTesting(m.bootstrap(app))
	if err != nil {
		m.t.Fatal(err)
	}
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		m.t.Fatal(err)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithResolvers(builder))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	return conn
}

// answeredBy calls an app, and returns the address that answered.
func answeredBy(ctx context.Context, conn *grpc.ClientConn) (address string, err error) {
	var from peer.Peer
	err = within(ctx, func(ctx context.Context) error {
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&from))
		return err
	})
	if err != nil {
		return "", err
	}
	return from.Addr.String(), nil
}

func TestGRPCGoCallsBothClusters(t *testing.T) {
	m := start(t)
	m.apply(m.west, meshtest.Cluster("east", m.east.Gateway), meshtest.Selection("shop", "checkout", "app: orders"))
	m.apply(m.east, meshtest.Cluster("west", m.west.Gateway), meshtest.Export("shop", "orders", "west"), instance(orders, "east-1", m.server(orders)))
	conn := m.dial(checkout, "xds:///orders.shop")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		from, err := answeredBy(t.Context(), conn)
		if err == nil && from != m.east.Gateway {
			err = fmt.Errorf("answered by %s, want east's gateway %s", from, m.east.Gateway)
		}
		return err
	})

	// Instances in this cluster come first, and share the calls.
	local := []string{m.server(orders), m.server(orders)}
	m.apply(m.west, instance(orders, "west-1", local[0]), instance(orders, "west-2", local[1]))
	answered := map[string]bool{}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		from, err := answeredBy(t.Context(), conn)
		if answered[from] = true; !answered[local[0]] || !answered[local[1]] {
			return fmt.Errorf("answered by %v: %w", answered, err)
		}
		return err
	})
	for range 20 {
		if from, err := answeredBy(t.Context(), conn); err != nil || !slices.Contains(local, from) {
			t.Errorf("answered by %q, %v; want an instance in this cluster", from, err)
		}
	}
	if from, err := answeredBy(t.Context(), m.dial(checkout, "xds:///orders.shop.east")); err != nil || from != m.east.Gateway {
		t.Errorf("orders in east: answered by %q, %v", from, err)
	}

	// What the selection no longer holds is gone.
	m.apply(m.west, meshtest.Selection("shop", "checkout"))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if _, err := answeredBy(t.Context(), conn); status.Code(err) != codes.Unavailable {
			return fmt.Errorf("without a selection: %v", err)
		}
		return nil
	})
}

// Another app with the same name and another certificate is nobody's callee.
func TestGRPCGoChecksWhoAnswers(t *testing.T) {
	m := start(t)
	m.apply(m.west, meshtest.Selection("shop", "checkout", "app: orders"),
		instance(orders, "west-1", m.server(catalog.App{Namespace: "shop", ID: "ledger"})))
	conn := m.dial(checkout, "xds:///orders.shop")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		from, err := answeredBy(t.Context(), conn)
		if err == nil {
			t.Fatalf("ledger at %s answered for orders", from)
		}
		if code := status.Code(err); code != codes.Unavailable {
			return fmt.Errorf("%s: %w", code, err)
		}
		return nil
	})
}
