package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/xds"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// argument is what a server's process needs to know.
type argument struct {
	Who      string
	Services int
}

// change gives a service one instance, at an address that n makes.
type change struct{ Service, N int }

func (c change) address() netip.AddrPort {
	// No two services ever have the same one: an address is one app's.
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(c.Service >> 8), byte(c.Service), byte(c.N)}), uint16(1024+c.N>>8))
}

func app(service int) catalog.App {
	return catalog.App{Namespace: "bench", ID: fmt.Sprintf("app-%d", service)}
}

const endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

func name(service int) string { return fmt.Sprintf("app-%d.bench", service) }

// subject is a server that is measured.
type subject interface {
	run(ctx context.Context, l net.Listener) error
	change(ctx context.Context, c change) error
}

func server(ctx context.Context, text []byte) error {
	var a argument
	if err := json.Unmarshal(text, &a); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var s subject = newLinear()
	if a.Who == "Isthmus" {
		if s, err = newIsthmus(ctx, l); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.run(ctx, l) })
	group.Go(func() error {
		defer stop()
		for service := range a.Services {
			if err := s.change(ctx, change{service, 0xffff}); err != nil {
				return err
			}
		}
		return measure.Answer(map[string]measure.Method{
			"Address": measure.Typed(func(measure.None) (string, error) { return l.Addr().String(), nil }),
			"Heap":    measure.Typed(func(measure.None) (uint64, error) { return measure.Settled().Heap, nil }),
			"Change": measure.Typed(func(c change) (int64, error) {
				began := time.Now()
				return began.UnixNano(), s.change(ctx, c)
			}),
		})
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// linear is go-control-plane's cache of one type.
type linear struct {
	cache *cache.LinearCache
}

func newLinear() *linear { return &linear{cache.NewLinearCache(endpointType)} }

func (s *linear) run(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer()
	mux := &cache.MuxCache{
		Classify:      func(*cache.Request) string { return endpointType },
		ClassifyDelta: func(*cache.DeltaRequest) string { return endpointType },
		Caches:        map[string]cache.Cache{endpointType: s.cache},
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(ctx, mux, nil))
	defer context.AfterFunc(ctx, g.Stop)()
	return g.Serve(l)
}

func (s *linear) change(_ context.Context, c change) error {
	return s.cache.UpdateResource(name(c.Service), types.Resource(&endpointv3.ClusterLoadAssignment{
		ClusterName: name(c.Service),
		Endpoints: []*endpointv3.LocalityLbEndpoints{{
			Locality: &corev3.Locality{Region: "west"},
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Hostname: name(c.Service) + ".west.isthmus.internal",
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: c.address().Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(c.address().Port())},
				}}},
			}}}},
		}},
	}))
}

// isthmus is a topology with the edge for xDS, where every app may call every other.
type isthmus struct {
	topology *topology.Topology
	part     edge.Part
}

func newIsthmus(ctx context.Context, l net.Listener) (*isthmus, error) {
	log := slog.New(slog.DiscardHandler)
	s := &isthmus{topology: topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}, log)}
	var err error
	s.part, err = xds.Edge(l.Addr().String(), &xds.Settings{}).Build(edge.Host{
		Cluster: edge.Cluster{Name: "west", Domain: catalog.DefaultDomain},
		Listen: edge.Listening{
			Listener: l, Connections: 100_000, Insecure: true,
			Bound: func(b bounded.Bounds) *bounded.Listener { return bounded.New(l, b) },
			GRPC: func(_ []string, _ identity.Certificate, own ...grpc.ServerOption) *grpc.Server {
				return grpc.NewServer(append(stream.ServerOptions(), own...)...)
			},
		},
		Views: edge.Views{Topology: s.topology},
		Tell:  edge.Telling{Metrics: prometheus.NewRegistry(), Log: log, Often: throttle.New(log, time.Second)},
	})
	return s, err
}

func (s *isthmus) run(ctx context.Context, _ net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.topology.Run(ctx) })
	group.Go(func() error { return s.part.Run(ctx) })
	group.Go(func() error {
		_, err := s.topology.Apply(ctx, topology.Change{Objects: &topology.ObjectChange{Full: true}})
		return err
	})
	return group.Wait()
}

func (s *isthmus) change(ctx context.Context, c change) error {
	_, err := s.topology.Apply(ctx, topology.Change{Instances: []topology.InstanceChange{{
		Source: "bench", Put: []catalog.Instance{{App: app(c.Service), ID: "one", Address: c.address()}},
	}}})
	return err
}
