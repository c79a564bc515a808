// Package servicetest runs a real resolver service inside a test.
package servicetest

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Start runs a resolver service of cluster west, without TLS, until the test ends. It returns the
// service's address. Apps may resolve any app of the cluster.
func Start(t testing.TB) (address string) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	top := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}, log)
	server, err := stream.New(stream.Config{}, top, prometheus.NewRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(stream.ServerOptions()...)
	pb.RegisterResolverServer(g, server)

	below, endBelow := context.WithCancel(context.Background())
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 3)
	go func() { done <- top.Run(below) }()
	go func() { done <- g.Serve(lis) }()
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		end()
		<-done // the stream server ends first
		g.Stop()
		endBelow()
		<-done
		<-done
	})
	if err := server.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := top.Apply(t.Context(), topology.Change{Objects: &topology.ObjectChange{Full: true}}); err != nil {
		t.Fatal(err)
	}
	return lis.Addr().String()
}
