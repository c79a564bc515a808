package catalog

import (
	"maps"
	"net"
	"slices"
	"strconv"
)

// Gateways are the gateway addresses of the clusters that a view leads to.
type Gateways struct {
	Domain    Domain
	Addresses map[string][]string // cluster to "host:port", in the order of its Cluster object
	// Apps are the addresses that lead to one app each, by cluster. Views have none: who
	// has a view sends a server name.
	Apps map[string][]AppGateway
	// Unheard are the clusters of which nothing has been heard yet, sorted. Views have none:
	// their routes say so.
	Unheard []string
}

// AppGateway is an address where a cluster's gateway leads to one app, also callers that
// send no server name, as Dapr's resolver "kubernetes" has daprd do.
type AppGateway struct {
	App     App
	Address string // "host:port", checked by CheckAppGateway
}

// DaprPort is where sidecars listen for others in Kubernetes, unless they are told to do so
// elsewhere.
const DaprPort = "50002"

// Port is that of the address.
func (g AppGateway) Port() string {
	_, port, _ := net.SplitHostPort(g.Address)
	return port
}

// Equal tells whether both name the same addresses in the same order.
func (g *Gateways) Equal(o *Gateways) bool {
	if g == o {
		return true
	}
	return g != nil && o != nil && g.Domain == o.Domain && slices.Equal(g.Unheard, o.Unheard) &&
		maps.EqualFunc(g.Addresses, o.Addresses, slices.Equal) && maps.EqualFunc(g.Apps, o.Apps, slices.Equal)
}

// GatewayPort is the port under which apps in the cluster are called by host name: that
// of its first gateway, since a host name has one port and callers that ask DNS for
// its address dial that.
func (c *Cluster) GatewayPort() string {
	if len(c.Gateways) > 0 {
		if _, port, err := net.SplitHostPort(c.Gateways[0]); err == nil {
			return port
		}
	}
	return strconv.Itoa(DefaultGatewayPort)
}

// Backend is where a gateway takes connections for one app of its own cluster.
type Backend struct {
	App       App
	Instances []string // "ip:port" of the ready instances, sorted
	// Shards has, for each shard of the app, the place in Instances of the one that
	// takes its connections. Empty where the app has no shards.
	Shards []uint16
	Tokens []uint32 // of the instances, by place
}

// Shard is the instance of a shard, by its place in Instances; any number maps to one
// as long as there is an instance. ok is false where there is none.
func (b *Backend) Shard(n int) (instance int, ok bool) {
	switch {
	case len(b.Instances) == 0 || n < 0:
		return 0, false
	case len(b.Shards) == 0:
		return n % len(b.Instances), true
	default:
		return int(b.Shards[n%len(b.Shards)]), true
	}
}

// GatewayTable is what a gateway serves: the exported apps of its own cluster and
// their ready instances. It is immutable.
type GatewayTable struct {
	Domain     Domain
	Kubernetes Kubernetes // names of its services are taken too, unless it is empty
	Cluster    string
	Revision   uint64
	Backends   Table[*Backend] // every exported app, also one with no ready instance
}

// Lookup finds the backend of a host name, as SNI or :authority carries it, and the
// part of it that the name asks for. ok is false unless the name is that of
// an exported app in this cluster, or of a part of one.
//
// The app's name need not say the cluster: a sidecar without Isthmus dials one name
// wherever the app is, <app>.<namespace>.<domain> or that of Dapr's service in Kubernetes,
// and who has come to this gateway means this cluster.
func (t *GatewayTable) Lookup(host string) (b *Backend, part Part, ok bool) {
	app, cluster, part, ok := t.Domain.ParsePart(host)
	if !ok {
		cluster, part = t.Cluster, NoPart
		if app, ok = t.Domain.ParseCallerHost(host); !ok {
			app, ok = t.Kubernetes.ParseHost(host)
		}
	}
	if !ok || cluster != t.Cluster {
		return nil, NoPart, false
	}
	b, ok = t.Backends.Get(app)
	return b, part, ok
}
