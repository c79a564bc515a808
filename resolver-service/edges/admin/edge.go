package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/hostcheck"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// Settings are the block "admin" of isthmus.yaml: who may ask for the pages of listen.admin
// and listen.debug.
type Settings struct {
	Hosts []string `yaml:"hosts,single"` // names that requests may have in their Host header
}

// The default addresses.
const (
	DefaultAddress      = "127.0.0.1:7480"
	DefaultDebugAddress = "127.0.0.1:7481"
)

// How long a request for a page may take to come before its connection gives way to others. It
// comes in one packet.
const (
	requestGrace = 100 * time.Millisecond
	debugGrace   = 10 * requestGrace // no probe has to get through there, and its clients may be on a busy machine
)

// Edge describes the pages of health and metrics at an address; empty for nowhere.
func Edge(address string, settings *Settings) edge.Edge {
	return edge.Edge{
		Name: "admin", Listen: edge.At("admin", address), Example: DefaultAddress, Last: true,
		Claim: edge.Claim{Default: 1024, Part: 8},
		Check: settings.check,
		Build: settings.builder("admin", (*Server).Handler, func(most int) bounded.Bounds {
			// A connection that waits for a request gives way, so nobody keeps a probe out.
			return bounded.Bounds{Max: most, PerClient: max(most/2, 1), Pending: most, Grace: requestGrace, Wait: 5 * requestGrace}
		}),
	}
}

// DebugEdge describes the pages that show what the service holds. exposed says that they are
// meant for more than this machine.
func DebugEdge(address string, exposed bool, settings *Settings) edge.Edge {
	return edge.Edge{
		Name: "debug", Listen: edge.At("debug", address), Example: DefaultDebugAddress, Last: true,
		Claim: edge.Claim{Default: 128, Part: 64},
		Check: func(doc *strict.Document) {
			if address != "" && !edge.OnLoopback(address) && !exposed && !doc.Wrong("listen.debug") {
				doc.Refuse("listen.debug", fmt.Sprintf("whoever reaches %s could read every view and take profiles", address),
					"write a loopback address such as "+DefaultDebugAddress+", or \"debugExposed: true\" if that is meant")
			}
		},
		Build: settings.builder("debug", (*Server).DebugHandler, func(most int) bounded.Bounds {
			return bounded.Bounds{Max: most, PerClient: most, Pending: most, Grace: debugGrace, Wait: 5 * debugGrace}
		}),
	}
}

func (s *Settings) check(doc *strict.Document) {
	for i, name := range s.Hosts {
		if err := hostcheck.Check(name); err != nil {
			doc.Refuse(fmt.Sprintf("admin.hosts[%d]", i), err.Error(), "write a name without a port, such as isthmus.example.com")
		}
	}
}

func (s *Settings) builder(name string, pages func(*Server) http.Handler, bounds func(most int) bounded.Bounds) func(edge.Host) (edge.Part, error) {
	return func(host edge.Host) (edge.Part, error) {
		server := New(Config{
			Status: host.Tell.Status, Ready: host.Tell.Ready, Registry: host.Tell.Metrics, Apps: host.Views.Apps, View: func(app catalog.App) (*catalog.View, bool) {
				sub := host.Views.Topology.Subscribe(app)
				defer sub.Close()
				return sub.View()
			}, Events: host.Tell.Events, Stopping: host.Tell.Stopping,
			Hosts: hostcheck.Hosts{Names: s.Hosts, Key: "admin.hosts", Domain: host.Cluster.Kubernetes, Log: host.Tell.Often},
		}, host.Tell.Log)
		if name == "admin" { // which has the metrics
			if err := host.Tell.Metrics.Register(server.readyMetric()); err != nil {
				return edge.Part{}, fmt.Errorf("admin: register metrics: %w", err)
			}
		}
		var l net.Listener = host.Listen.Bound(bounds(host.Listen.Connections))
		return edge.Part{Run: func(ctx context.Context) error { return server.serve(ctx, l, pages(server)) }}, nil
	}
}
