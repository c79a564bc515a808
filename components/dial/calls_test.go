package dial

import (
	"maps"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// callsTo returns the counts of orders in a cluster.
func (w *testDialer) callsTo(cluster string) Calls {
	for _, c := range w.Calls() {
		if c.App == orders && c.Cluster == cluster {
			return c
		}
	}
	return Calls{App: orders, Cluster: cluster}
}

func (w *testDialer) wantCalls(t *testing.T, cluster string, begun uint64, failed map[codes.Code]uint64) {
	t.Helper()
	if got := w.callsTo(cluster); got.Begun != begun || !maps.Equal(got.Failed, failed) {
		t.Errorf("calls to %q: %+v, want %d and of these failed %v", cluster, got, begun, failed)
	}
}

func TestCallsAreCountedByCluster(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, gw.Address)
	if all := w.Calls(); len(all) != 0 {
		t.Errorf("before any call: %+v", all)
	}
	conn := w.dial(t)
	for range 3 {
		mustCall(t, conn)
	}
	w.wantCalls(t, "east", 3, nil)

	if err := conn.Invoke(t.Context(), "/no.such/Method", new(healthpb.HealthCheckRequest), new(healthpb.HealthCheckResponse)); err == nil {
		t.Error("a method that does not exist succeeds")
	}
	w.wantCalls(t, "east", 4, map[codes.Code]uint64{codes.Unimplemented: 1})

	_ = conn.Close()
	again := w.dial(t)
	mustCall(t, again)
	w.wantCalls(t, "east", 5, map[codes.Code]uint64{codes.Unimplemented: 1})

	w.setRoutes(nil, catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, Local: true})
	begun := uint64(5)
	for { // until the channel has the view
		if _, err := call(t, again); err != nil {
			break
		}
		begun++
	}
	w.wantCalls(t, "", 1, map[codes.Code]uint64{codes.Unavailable: 1})

	w.Close()
	w.wantCalls(t, "east", begun, map[codes.Code]uint64{codes.Unimplemented: 1})
}
