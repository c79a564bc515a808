// Package edge is what an edge is to the service: a way in which others reach it, such as
// DNS or Consul's API. The folder of an edge has a function Edge, which describes it with its
// settings as an [Edge] value. One line in the service's table (edges.go) makes it known.
//
// The service does the rest for each edge in the table: it checks the configuration, opens
// the listeners or takes them from a predecessor, shares out the descriptors, starts and ends
// the edge, and asks it for its part of status and /readyz. docs/how-to/add-an-edge.md is the
// recipe.
package edge

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// Edge describes an edge with its settings. Only Name is always there.
type Edge struct {
	// Name is the edge's word everywhere: its folder, listen.<name> and <name> in isthmus.yaml,
	// logs and errors.
	Name string
	// Listen is where the edge listens. An edge that listens nowhere does not run.
	Listen []Listener
	// Example is an address that the edge often has, for errors; empty: that of the resolver.
	Example string
	// Claim is what the edge wants of the process's descriptors.
	Claim Claim
	// Check adds what is wrong with the edge's settings and listeners. It opens nothing. The
	// service has checked the form of addresses already, where Open is nil.
	Check func(doc *strict.Document)
	// Open opens what the edge listens with; nil: a TCP listener at each address.
	Open func(Opening) (Sockets, error)
	// Build makes the edge, and starts nothing. It is called once, after Open. It is nil for the
	// gateway and for what serves the resolver's methods: the service builds those itself.
	Build func(Host) (Part, error)
	// Drains says that the edge's connections may finish: it is told to end first, and the
	// others run until it has ended.
	Drains bool
	// Optional says that the service runs without the edge where it can't listen, and warns.
	Optional bool
	// Last says that the edge runs until everything else has ended, as health pages do.
	Last bool
}

// Listener is an address of an edge. Name is its path below "listen"; it is Edge.Name, or
// that with an index for one of several.
type Listener struct {
	Name    string
	Address string      // host:port, or unix:///path
	Mode    os.FileMode // of a Unix socket; 0: 0600
}

// SocketMode is the mode of a Unix socket. By default it lets the service's own user connect, and
// nobody else.
func (l Listener) SocketMode() os.FileMode { return cmp.Or(l.Mode, 0o600) }

// At is the listener of an edge that has at most one.
func At(name, address string) []Listener {
	if address == "" {
		return nil
	}
	return []Listener{{Name: name, Address: address}}
}

// Claim is how many connections an edge wants to take at each of its listeners.
type Claim struct {
	Key     string // of the settings, such as "consul.maxConnections"; empty: there is none
	Max     int    // as the settings say; 0: Default
	Default int
	Cost    int // descriptors of each connection; 0: 1
	// Beside is how many descriptors the edge takes of so many, beside those of connections; nil: none.
	Beside func(limit int) int
	// Joint says that Max is for all of the edge's listeners together, and not for each.
	Joint bool
	// Part is for pages of operators, which must answer while all else is full. They take at
	// most one Part-th of the descriptors, before the other edges share the rest; 0: no.
	Part int
}

// Opening is what Open may use.
type Opening struct {
	Connections int // that each listener may take
	Cores       int // that the process is spread over; 0 for what Go says
	// TakeOver is the TCP listener of a predecessor at an address; nil where there is none.
	TakeOver func(address string) (net.Listener, error)
	Log      *slog.Logger
}

// Sockets are open listeners of an edge's own kind.
type Sockets interface {
	// Addr is where the i-th listens; nil where there are fewer.
	Addr(i int) net.Addr
	// TCP is the TCP listeners by configured address, for a successor of the service.
	TCP() map[string]net.Listener
	// Close closes those that were never served.
	Close()
}

// Host is what the service offers to an edge. Its functions may be called from any goroutine.
type Host struct {
	Cluster  Cluster
	Listen   Listening
	Views    Views
	Register Registering
	Tell     Telling
}

// Cluster is the cluster that an edge is of, and the program.
type Cluster struct {
	Name       string
	Domain     catalog.Domain
	Kubernetes string // the cluster domain of Kubernetes; empty where it was not configured
	Replica    string // this one's name; empty where there is one service
	Version    string // of the program
}

// Listening is what an edge listens with, and how it lets clients in.
type Listening struct {
	Listener    net.Listener // the one of Edge.Listen, if that has one
	Sockets     Sockets      // those of Edge.Open
	Connections int          // that each listener may take
	Directory   string       // for what the edge keeps over a restart
	// Bound bounds the connections of Listener, and counts them in the service's metrics.
	Bound func(bounded.Bounds) *bounded.Listener
	// Insecure says that nobody has certificates.
	Insecure bool
	// GRPC makes a server for apps of this cluster, which may call these methods. It shows a
	// certificate; nil: the service's own.
	GRPC func(methods []string, show identity.Certificate, own ...grpc.ServerOption) *grpc.Server
	// Operators makes a server of what operators may call, for a listener that only the edge itself
	// reaches.
	Operators func(authz.Admit) *grpc.Server
}

// Views is where an edge finds its answers.
type Views struct {
	Topology *topology.Topology
	Apps     func() []catalog.App // those with a selection, in order
	// Settled is closed once views have all that they had before the service started.
	Settled <-chan struct{}
	// Resolver is how host names of gateways are looked up. It is known once all edges are built.
	Resolver func() *net.Resolver
}

// Registering is for an edge where instances register.
type Registering struct {
	Destinations *destination.Rules // for the addresses of instances
	Prober       *probe.Prober      // holds all checks to its rules
	// Share is where instances that register here are shared with other replicas; nil where
	// nothing is shared. Then Alone says what that means, and is empty for a single service.
	Share Sharer
	Alone string
	Clock *topology.Clock // gives registrations their times
	// Delegates may register instances at other addresses than their own.
	Delegates destination.Delegates
	// Streams is the source of instances that each hold a stream open: no registration of another
	// app takes their addresses.
	Streams string
}

// Telling is where an edge tells what happens, and hears how the service is.
type Telling struct {
	Log      *slog.Logger
	Metrics  *prometheus.Registry
	Often    *throttle.Log // for lines that clients cause
	Events   *events.Ring
	Status   func() *v1alpha1.StatusResponse
	Ready    func() (reasons, notes []string) // of all edges
	Stopping *live.Value[bool]
}

// Sharer tells other replicas of the service which instances are registered with this one.
// Its methods must not block.
type Sharer interface {
	// Share says that an instance is registered here, or how it is now. restored says that it
	// registered before a restart: then it yields to a later registration with another replica.
	// taken is called, at most once, when another has it.
	Share(i catalog.Instance, restored bool, taken func())
	// Withdraw says that an instance is not registered here any more.
	Withdraw(key topology.InstanceKey)
}

// Part is an edge that was built. Every function may be nil but Run.
type Part struct {
	// Restore brings back what the edge kept before a restart. It is called before objects
	// are read, so that no view is without it.
	Restore func(context.Context) error
	// Run serves until ctx ends, and returns once everything of the edge has ended. An edge
	// that ends by itself ends the service.
	Run func(context.Context) error
	// Status adds the edge's part to the status of the service. Any goroutine calls it.
	Status func(*v1alpha1.StatusResponse)
	// Ready says why the service is not ready, and what is wrong without standing in the way.
	// Any goroutine calls it.
	Ready func() (reasons, notes []string)
	// Trusted is the certificates that clients are shown.
	Trusted func() []identity.Trusted
	// Resolver is how the service looks up the host names of gateways; nil: as the system does.
	Resolver *net.Resolver
}

// Together runs several functions as one. When one ends, the others are told to; the error is
// the first one's.
func Together(runs ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, len(runs))
		for _, run := range runs {
			go func() { ended <- run(ctx) }()
		}
		first := <-ended
		cancel()
		for range len(runs) - 1 {
			if err := <-ended; first == nil {
				first = err
			}
		}
		return first
	}
}
