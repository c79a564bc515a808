package resolverservice

import (
	"context"
	"net"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/admin"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/consulapi"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/xds"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
)

// edges are all edges, in the order in which they listen, are built and start.
func (c *Config) edges() []edge.Edge {
	return append([]edge.Edge{
		c.resolverEdge(), // which joins stream, objects and status on one listener
		c.operatorEdge(),
		c.kubernetesEdge(),
		c.gatewayEdge(), // which joins gateway and peering
		consulapi.Edge(c.Listen.Consul, &c.Consul),
		xds.Edge(c.Listen.XDS, &c.XDS),
		console.Edge(c.Listen.Console, &c.Console),
		dns.Edge(c.Listen.DNS, &c.DNS, c.Domain),
		admin.Edge(c.Listen.Admin, &c.Admin),
		admin.DebugEdge(c.Listen.Debug, c.Listen.DebugExposed, &c.Admin),
	}, c.moreEdges...)
}

// resolverEdge has what the service does for every edge. The rest is in resolver.go.
func (c *Config) resolverEdge() edge.Edge {
	return edge.Edge{
		Name: "resolver", Listen: c.listenResolver(),
		Claim: edge.Claim{Key: "resolver.maxConnections", Max: c.Resolver.MaxConnections, Default: defaultConnections},
		Check: func(doc *strict.Document) { checker{c, doc}.checkResolver() },
	}
}

// gatewayEdge has the gateway's listener and those of single apps. The rest is in gateway.go.
func (c *Config) gatewayEdge() edge.Edge {
	listen := edge.At("gateway", c.Listen.Gateway)
	for i, l := range c.Listen.Apps {
		listen = append(listen, edge.Listener{Name: appListener(i), Address: l.Address})
	}
	return edge.Edge{
		Name: "gateway", Listen: listen, Example: "0.0.0.0:15443", Drains: true, // other clusters reach it
		Claim: edge.Claim{
			Key: "gateway.maxConnections", Max: c.Gateway.MaxConnections, Default: defaultGatewayConnections, Cost: descriptorsPerGatewayConnection, Joint: true,
			Beside: func(limit int) int { return gateway.Descriptors(maxPeers(limit), len(listen)) },
		},
		Check: func(doc *strict.Document) { checker{c, doc}.checkGateway() },
	}
}

// builtEdge is an edge that was built.
type builtEdge struct {
	edge.Edge
	edge.Part
}

// builtEdges are the edges that listen, in the order of the table.
type builtEdges []builtEdge

// buildParts makes the edges that have something to listen with.
func (s *Service) buildParts() error {
	own := map[string]func() (edge.Part, error){
		"resolver": s.resolver.part, "operator": s.operatorPart, "kubernetes": s.kubernetesPart, "gateway": s.ingress.part,
	}
	for _, e := range s.cfg.edges() {
		// Calls come to the gateway by tunnels, too.
		if none := len(e.Listen) == 0 || s.listeners.Missing(e); none && (e.Name != "gateway" || s.identity.Insecure()) {
			continue
		}
		build, ok := own[e.Name]
		if !ok {
			build = func() (edge.Part, error) { return e.Build(s.host(e)) }
		}
		built, err := build()
		if err != nil {
			return err
		}
		s.edges = append(s.edges, builtEdge{e, built})
	}
	return nil
}

// host is what the service offers to an edge.
func (s *Service) host(e edge.Edge) edge.Host {
	listener := s.listeners.TCP(e.Name)
	return edge.Host{
		Cluster: edge.Cluster{
			Name: s.cfg.Cluster, Domain: catalog.Domain(s.cfg.Domain), Kubernetes: s.cfg.DNS.Kubernetes, Replica: s.cfg.replica(), Version: s.cfg.Version,
		},
		Listen: edge.Listening{
			Listener: listener, Sockets: s.listeners.Sockets(e.Name), Connections: s.listeners.Bounds().Of[e.Name], Directory: s.cfg.dataDir().Own(e.Name),
			Bound:    func(b bounded.Bounds) *bounded.Listener { return s.connections.Bound(e.Name, listener, b) },
			Insecure: s.identity.Insecure(),
			GRPC: func(methods []string, show identity.Certificate, own ...grpc.ServerOption) *grpc.Server {
				return s.access.NewServer(authz.ForApps(e.Name, methods), s.identity.OutsiderCredentials(show, identity.Anyone), own...)
			},
			Operators: s.resolver.operators,
		},
		Views:    edge.Views{Topology: s.topology, Apps: s.feed.Selections, Settled: s.sources.settled, Resolver: s.edges.resolver},
		Register: s.registering(),
		Tell: edge.Telling{
			Log: s.log, Often: s.often, Events: s.events, Metrics: s.registry, Status: s.status, Ready: s.edges.ready, Stopping: &s.stopping,
		},
	}
}

// registering is what edges hold registrations to.
func (s *Service) registering() edge.Registering {
	r := edge.Registering{
		Destinations: s.destinations, Prober: s.sources.prober, Clock: s.sources.clock, Delegates: s.cfg.delegates(), Streams: stream.Source,
	}
	if s.sources.shared != nil {
		r.Share = s.sources.shared // and no Sharer that is not nil
	} else if s.cfg.Replicas != nil {
		r.Alone = "this is one of several replicas of Isthmus, and what is registered here the others would never know; " +
			"have them share it by instances.etcd in isthmus.yaml, or register where they read instances from"
	}
	return r
}

// resolver is how host names of gateways are looked up.
func (all *builtEdges) resolver() *net.Resolver {
	for _, p := range *all {
		if p.Resolver != nil {
			return p.Resolver
		}
	}
	return net.DefaultResolver
}

// restore brings back what the edges kept before a restart.
func (all *builtEdges) restore(ctx context.Context) error {
	for _, p := range *all {
		if p.Restore == nil {
			continue
		}
		if err := p.Restore(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start starts the edges in the groups that they end with.
func (all *builtEdges) start(serving, draining, last *process.Group) {
	for _, p := range *all {
		group := serving
		switch {
		case p.Drains:
			group = draining
		case p.Last:
			group = last
		}
		group.Start("listen."+p.Name, p.Run)
	}
}

// ready is why the edges are not ready, and what else is wrong with them.
func (all *builtEdges) ready() (reasons, notes []string) {
	for _, p := range *all {
		if p.Ready != nil {
			why, beside := p.Ready()
			reasons, notes = append(reasons, why...), append(notes, beside...)
		}
	}
	return reasons, notes
}

// addStatus adds the edges' parts to the status.
func (all *builtEdges) addStatus(answer *v1alpha1.StatusResponse) {
	for _, p := range *all {
		if p.Status != nil {
			p.Status(answer)
		}
	}
}

// trusted is the certificates that the edges show to clients.
func (all *builtEdges) trusted() (certificates []identity.Trusted) {
	for _, p := range *all {
		if p.Trusted != nil {
			certificates = append(certificates, p.Trusted()...)
		}
	}
	return certificates
}
