package dial

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer/roundrobin"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// BenchmarkCall is a whole call through one of two gateways, dialled as daprd does by
// itself and as with us.
func BenchmarkCall(b *testing.B) {
	first, second := startGateway(b), startGateway(b)
	names, _ := east(first.Address, second.Address)
	stock := manual.NewBuilderWithScheme("stock")
	stock.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: first.Address}, {Addr: second.Address}}})
	for name, conn := range map[string]*grpc.ClientConn{
		roundrobin.Name: mustDial(b, New(nil), "stock:///"+ordersInEast, grpc.WithResolvers(stock)),
		policy:          mustDial(b, names, ordersInEast),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			client := healthpb.NewHealthClient(conn)
			for b.Loop() {
				if _, err := client.Check(b.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
