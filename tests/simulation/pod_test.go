package simulation

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// pod is an instance of an app that runs. Its sidecar's guard decides who gets in.
type pod struct {
	internalv1.UnimplementedServiceInvocationServer
	cluster *cluster
	app     catalog.App
	address string
	server  *grpc.Server
	serving sync.WaitGroup
	busy    atomic.Int64 // calls under way
}

// placePods starts and kills pods so that the instances run that should.
func (w *world) placePods() {
	if w.pods == nil {
		return
	}
	want := map[string]*pod{}
	for _, c := range w.clusters {
		_, all, _ := c.instances.newest()
		for _, i := range all {
			want[i.Address.String()] = &pod{cluster: c, app: i.App, address: i.Address.String()}
		}
	}
	for address, p := range w.pods {
		if next := want[address]; next == nil || next.cluster != p.cluster || next.app != p.app {
			if address != w.fallen {
				p.kill()
			}
			delete(w.pods, address)
		}
	}
	for address, p := range want {
		if w.pods[address] == nil {
			if w.pods[address] = p; address != w.fallen {
				p.start()
			}
		}
	}
}

// networkAt is the network of the pod at an address; empty without one.
func (w *world) networkAt(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}
	switch n := at.Addr().As4()[1]; {
	case int(n) < len(clusterNames):
		return networkOf[clusterNames[n]]
	default:
		return networkOf["north"] // which it shares
	}
}

// podPort is the port of sidecars' internal servers.
const podPort = "50002"

// daprdPings are those that daprd takes.
var daprdPings = keepalive.EnforcementPolicy{MinTime: 8 * time.Second, PermitWithoutStream: true}

func (p *pod) start() {
	w := p.cluster.world
	host, port, _ := net.SplitHostPort(p.address)
	l, err := w.net.Host(host).Listen(port)
	if err != nil {
		w.fail("pod: %v", err)
		return
	}
	p.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.KeepaliveEnforcementPolicy(daprdPings), grpc.Creds(&mtls{self: caller{p.cluster.name, p.app}}), grpc.UnaryInterceptor(p.guarded))
	internalv1.RegisterServiceInvocationServer(p.server, p)
	healthpb.RegisterHealthServer(p.server, health.NewServer())
	p.cluster.sidecar(p.app).clock.do(func() { p.serving.Go(func() { _ = p.server.Serve(l) }) })
}

// kill ends it as kill -9 does.
func (p *pod) kill() {
	host, _, _ := net.SplitHostPort(p.address)
	p.cluster.world.net.Host(host).Kill()
	p.server.Stop()
	p.serving.Wait()
}

// Metadata of calls.
const (
	callKey  = "x-call"  // its index
	takesKey = "x-takes" // how long it takes
	failsKey = "x-fails" // whether the app says then that it is unavailable
)

// guarded is what the sidecar's interceptors do with a call, and the app.
func (p *pod) guarded(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	w := p.cluster.world
	md, _ := metadata.FromIncomingContext(ctx)
	from, _ := peer.FromContext(ctx)
	who := from.AuthInfo.(peerInfo).caller
	d := p.cluster.sidecar(p.app)
	d.mu.Lock()
	guard := d.resolver.Guard()
	d.mu.Unlock()
	admitted := guard.Caller(catalog.Principal{Domain: domainOf(who.Cluster), App: who.App})
	ctx, done, err := admitted.Open(ctx)
	w.judged(d, who, err)
	if err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	defer done()
	id, err := strconv.Atoi(first(md.Get(callKey)))
	if err != nil {
		return nil, err
	}
	w.executed(id, p)
	p.busy.Add(1)
	defer p.busy.Add(-1)
	takes, _ := time.ParseDuration(first(md.Get(takesKey)))
	select {
	case <-time.After(takes):
		if first(md.Get(failsKey)) == "true" {
			return nil, status.Error(codes.Unavailable, "the app is not there")
		}
		return next(ctx, req)
	case <-ctx.Done():
		return nil, status.Error(codes.PermissionDenied, context.Cause(ctx).Error())
	}
}

func first(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// CallLocal is how daprd calls an app.
func (p *pod) CallLocal(context.Context, *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	return &internalv1.InternalInvokeResponse{}, nil
}

func (c *cluster) sidecar(a catalog.App) *sidecar {
	return c.sidecars[slices.Index(apps, a)]
}
