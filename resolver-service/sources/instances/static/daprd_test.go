package static

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// TestASidecarIsChecked checks a real daprd in every way that it can be.
func TestASidecarIsChecked(t *testing.T) {
	programstest.Need(t, "daprd")
	s, err := sandbox.New(t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	d, err := s.Daprd(ctx, sandbox.DaprdOptions{App: catalog.App{Namespace: "shop", ID: "orders"}})
	if err != nil {
		t.Fatal(err)
	}
	internal := netip.MustParseAddrPort(d.Internal)
	checked := func(name string, c catalog.HealthCheck) *catalog.AppInstance {
		o := at(d.Internal, c)
		o.Name = name
		o.Check.Timeout, o.Check.Interval = 10*time.Second, time.Second
		if c.Kind == catalog.CheckHTTP {
			o.Check.Port = netip.MustParseAddrPort(d.HTTP).Port()
		}
		return o
	}
	w := watch(t, nil,
		checked("http", catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/v1.0/healthz"}),
		checked("outbound", catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/v1.0/healthz/outbound"}),
		checked("tcp", catalog.HealthCheck{Kind: catalog.CheckTCP}),
		checked("grpc", catalog.HealthCheck{Kind: catalog.CheckGRPC}))
	// daprd's internal server speaks gRPC, and passes the health protocol on as a call.
	w.await(t, "orders/grpc not, orders/http ready, orders/outbound ready, orders/tcp ready", "grpc "+internal.String()+": Unknown: cannot proxy request")
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	w.await(t, "orders/grpc not, orders/http not, orders/outbound not, orders/tcp not", "AppInstance shop/tcp: tcp "+internal.String()+": connection refused")
}
