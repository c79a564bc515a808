package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/identity"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// settle is how long the instances stand that nobody comes back for: longer than the
// program runs, since most of the fleet is not there.
const settle = 10 * time.Minute

// service is the resolver service as it stands in production, but for its other edges.
// It prints its address once it is ready, and ends when standard input does.
func service(ctx context.Context, dir, profile string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := newParts(ctx, place(dir), log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	told := make(chan error, 1)
	go func() {
		defer stop()
		told <- listen(profile)
	}()
	err = s.run(ctx)
	return errors.Join(err, <-told)
}

// listen waits for the end of standard input. What is profiled begins when something
// comes.
func listen(profile string) error {
	if n, err := os.Stdin.Read(make([]byte, 1)); n == 0 || err != nil {
		return nil
	}
	end, err := startProfile(profile)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, end())
}

// parts are the service's.
type parts struct {
	id       *identity.Source
	store    *embedded.Store
	topology *topology.Topology
	feed     *objects.Feed
	streams  *stream.Server
	server   *grpc.Server
}

func newParts(ctx context.Context, p place, log *slog.Logger) (s parts, err error) {
	app := identity.ServiceApp("", cluster)
	if s.id, err = identity.New(p.identity(app), app, log); err != nil {
		return s, err
	}
	if err := s.id.Load(ctx); err != nil {
		return s, err
	}
	if s.store, err = embedded.Open(p.store()); err != nil {
		return s, err
	}
	s.topology = topology.New(topology.Config{Cluster: cluster, Domain: catalog.DefaultDomain, Open: true}, log)
	s.feed = objects.NewFeed(s.store, s.topology, log)
	s.streams, err = stream.New(stream.Config{Snapshot: p.snapshot(), RejoinTimeout: settle, Source: manyHosts, MaxStreams: math.MaxInt}, s.topology, prometheus.NewRegistry(), log)
	if err != nil {
		return s, err
	}
	s.server = grpc.NewServer(append(stream.ServerOptions(), grpc.Creds(s.id.ServerCredentials(identity.Anyone)))...)
	pb.RegisterResolverServer(s.server, s.streams)
	return s, nil
}

func (s parts) run(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	group, inner := errgroup.WithContext(ctx)
	// What the streams stand on ends after them.
	below, endBelow := context.WithCancel(context.Background())
	group.Go(func() error { return s.topology.Run(below) })
	group.Go(func() error { return resolverservice.SaveMemory(below, s.topology.Ready()) })
	if err := s.streams.Restore(ctx); err != nil {
		endBelow()
		return errors.Join(err, group.Wait(), listener.Close(), s.store.Close())
	}
	group.Go(func() error { return s.feed.Run(below) })
	group.Go(func() error { return s.id.Run(below) })
	group.Go(func() error { return s.server.Serve(listener) })
	group.Go(func() error {
		defer endBelow()
		defer s.server.Stop()
		return s.streams.Run(inner)
	})
	group.Go(func() error { return s.announce(inner, listener.Addr()) })
	return errors.Join(group.Wait(), s.store.Close())
}

// announce waits until the service has everything, then prints its address.
func (s parts) announce(ctx context.Context, address net.Addr) error {
	if _, err := s.topology.Ready().Wait(ctx); err != nil {
		return err
	}
	fmt.Println(address)
	return nil
}

// startProfile profiles the CPU from now on, and the heap at the end.
func startProfile(dir string) (end func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.Create(filepath.Join(dir, "service.cpu.pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		heap, err := os.Create(filepath.Join(dir, "service.heap.pprof"))
		if err != nil {
			return errors.Join(err, cpu.Close())
		}
		runtime.GC()
		return errors.Join(cpu.Close(), pprof.WriteHeapProfile(heap), heap.Close())
	}, nil
}

// manyHosts takes each sidecar for one of another host: here all of them are one process.
func manyHosts(_ context.Context, claimed netip.Addr) netip.Addr { return claimed }
