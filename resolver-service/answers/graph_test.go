package answers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// inventoryOf serves the inventory of a topology with these objects, and returns a client.
func inventoryOf(tb testing.TB, objects ...catalog.Object) v1alpha1.InventoryClient {
	tb.Helper()
	return inventoryWith(tb, topology.Change{Objects: &topology.ObjectChange{Full: true, Put: objects}})
}

// inventoryWith is the inventory of a service that has heard all that.
func inventoryWith(tb testing.TB, changes ...topology.Change) v1alpha1.InventoryClient {
	tb.Helper()
	top := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	server := grpc.NewServer()
	v1alpha1.RegisterInventoryServer(server, &Inventory{Topology: top, Health: callhealth.New(callhealth.Config{Cluster: "west", Decide: top.Resolve})})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	var runs sync.WaitGroup
	runs.Go(func() { _ = top.Run(ctx) })
	runs.Go(func() { _ = server.Serve(listener) })
	tb.Cleanup(func() { conn.Close(); server.Stop(); stop(); runs.Wait() })
	for _, c := range changes {
		if _, err := top.Apply(ctx, c); err != nil {
			tb.Fatal(err)
		}
	}
	return v1alpha1.NewInventoryClient(conn)
}

// all are the messages of a stream as one.
func all[M any](stream grpc.ServerStreamingClient[M], err error, take func(*M)) error {
	for err == nil {
		var m *M
		if m, err = stream.Recv(); err == nil {
			take(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func graph(ctx context.Context, of v1alpha1.InventoryClient, req *v1alpha1.GraphRequest) (text string, err error) {
	stream, err := of.Graph(ctx, req)
	err = all(stream, err, func(m *v1alpha1.GraphResponse) {
		if m.GetCluster() != "" {
			text += fmt.Sprint(m.GetCluster(), " at ", m.GetRevision(), ":")
		}
		for _, c := range m.GetClusters() {
			text += " (" + c.GetName() + ")"
		}
		for _, a := range m.GetApps() {
			text += " " + a.GetApp().GetId()
		}
		for _, c := range m.GetCalls() {
			text += fmt.Sprintf(" %s>%s/%d", c.GetCaller().GetId(), c.GetCallee().GetId(), len(c.GetRoutes()))
		}
	})
	return text, err
}

func TestAGraphMayBeOfPartsAlone(t *testing.T) {
	in := func(namespace, id string) catalog.App { return catalog.App{Namespace: namespace, ID: id} }
	client := inventoryOf(t, &catalog.Cluster{Name: "east"}, &catalog.Cluster{Name: "north"},
		&catalog.AppEndpoints{App: in("shop", "web"), Endpoints: []catalog.Endpoint{{App: in("shop", "orders")}}},
		&catalog.AppEndpoints{App: in("shop", "orders"), Endpoints: []catalog.Endpoint{{App: in("bank", "ledger"), Routes: []catalog.RouteSpec{{Cluster: "west"}, {Cluster: "east", Priority: 1}}}}},
		&catalog.AppEndpoints{App: in("bank", "ledger"), Endpoints: []catalog.Endpoint{{App: in("bank", "disk")}}},
	)
	app := func(namespace, id string) *v1alpha1.App { return &v1alpha1.App{Namespace: namespace, Id: id} }
	for _, c := range []struct {
		req  *v1alpha1.GraphRequest
		want string
	}{
		{&v1alpha1.GraphRequest{}, "west at 1: (east) (north) disk ledger orders web ledger>disk/1 orders>ledger/2 web>orders/1"},
		{&v1alpha1.GraphRequest{Focus: app("shop", "web")}, "west at 1: orders web web>orders/1"},
		{&v1alpha1.GraphRequest{Focus: app("shop", "web"), Steps: 2}, "west at 1: (east) ledger orders web orders>ledger/2 web>orders/1"},
		{&v1alpha1.GraphRequest{Focus: app("shop", "nobody")}, "west at 1:"},
		{&v1alpha1.GraphRequest{Namespace: "bank"}, "west at 1: (east) disk ledger orders ledger>disk/1 orders>ledger/2"},
		{&v1alpha1.GraphRequest{Via: "east"}, "west at 1: (east) ledger orders orders>ledger/2"},
		{&v1alpha1.GraphRequest{Via: "north"}, "west at 1: (north)"},
		{&v1alpha1.GraphRequest{Via: "east", Focus: app("shop", "web"), Steps: 1}, "west at 1: (east) web"},
	} {
		got, err := graph(t.Context(), client, c.req)
		if got != c.want {
			t.Errorf("%v: %v\ngot  %s\nwant %s", c.req, err, got, c.want)
		}
	}
	for want, req := range map[string]*v1alpha1.GraphRequest{
		"focus: ": {Focus: app("shop", "")}, "steps: 1;": {Steps: 1}, "steps: 3;": {Focus: app("shop", "web"), Steps: 3}, "via: west is this": {Via: "west"},
	} {
		if _, err := graph(t.Context(), client, req); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", req, err, want)
		}
	}
}

// BenchmarkGraph asks a service of so many apps, each with 20 callees, for the graph: the whole, and
// two steps around one app.
func BenchmarkGraph(b *testing.B) {
	for _, apps := range []int{2_000, 10_000} {
		name := func(i int) catalog.App {
			return catalog.App{Namespace: fmt.Sprint("ns-", i%20), ID: fmt.Sprint("app-", i%apps)}
		}
		objects := make([]catalog.Object, apps)
		for i := range objects {
			s := &catalog.AppEndpoints{App: name(i)}
			for j := range 20 {
				s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: name((i + 1 + j*37) % apps)})
			}
			objects[i] = s
		}
		client := inventoryOf(b, objects...)
		for _, part := range []struct {
			name string
			req  *v1alpha1.GraphRequest
		}{
			{"whole", &v1alpha1.GraphRequest{}},
			{"focus", &v1alpha1.GraphRequest{Focus: &v1alpha1.App{Namespace: "ns-0", Id: "app-0"}, Steps: 2}},
			{"namespace", &v1alpha1.GraphRequest{Namespace: "ns-0"}},
		} {
			b.Run(fmt.Sprintf("apps=%d/%s", apps, part.name), func(b *testing.B) {
				calls := 0
				for b.Loop() {
					calls = 0
					stream, err := client.Graph(b.Context(), part.req)
					if err := all(stream, err, func(m *v1alpha1.GraphResponse) { calls += len(m.GetCalls()) }); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(calls), "calls")
			})
		}
	}
}
