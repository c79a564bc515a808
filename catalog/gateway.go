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
	// Apps are the addresses that lead to one app each, by cluster. Views have none, since their
	// callers send a server name.
	Apps map[string][]AppGateway
	// Unheard are the clusters that have not sent anything yet, sorted. Views have none, since
	// their routes show it.
	Unheard []string
}

// AppGateway is an address at which a cluster's gateway leads to one app, even without a server
// name. daprd sends none with Dapr's resolver "kubernetes".
type AppGateway struct {
	App     App
	Address string // "host:port", checked by CheckAppGateway
}

// DaprPort is the default port of sidecars' internal gRPC server in Kubernetes.
const DaprPort = "50002"

// Port is the port of the address.
func (g AppGateway) Port() string {
	_, port, _ := net.SplitHostPort(g.Address)
	return port
}

// Equal tells whether both have the same addresses in the same order.
func (g *Gateways) Equal(o *Gateways) bool {
	if g == o {
		return true
	}
	return g != nil && o != nil && g.Domain == o.Domain && slices.Equal(g.Unheard, o.Unheard) &&
		maps.EqualFunc(g.Addresses, o.Addresses, slices.Equal) && maps.EqualFunc(g.Apps, o.Apps, slices.Equal)
}

// GatewayPort is the port for host names of apps in the cluster: that of its first gateway. A
// host name has one port, and callers that resolve it by DNS dial that port.
func (c *Cluster) GatewayPort() string {
	if len(c.Gateways) > 0 {
		if _, port, err := net.SplitHostPort(c.Gateways[0]); err == nil {
			return port
		}
	}
	return strconv.Itoa(DefaultGatewayPort)
}

// Backend is where a gateway leads the connections for one app of its own cluster.
type Backend struct {
	App       App
	Instances []string // "ip:port" of the ready instances, sorted
	// Shards has, for each shard, the index in Instances of the instance that takes its
	// connections. It is empty if the app has no shards.
	Shards []uint16
	Tokens []uint32 // of the instances, by index
	// Versioned are the tokens by their versions; see [VersionToken]. Without any version, Tokens.
	Versioned []uint32
}

// Instance is the index of the instance that a token names.
func (b *Backend) Instance(token uint32) (instance int, ok bool) {
	i := slices.Index(b.Tokens, token)
	if i < 0 {
		i = slices.Index(b.Versioned, token)
	}
	return i, i >= 0
}

// Shard is the instance of a shard, by its index in Instances. Any number maps to an instance; ok
// is false if there is none.
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

// GatewayTable is what a gateway serves: the exported apps of its own cluster and their ready
// instances. It is immutable.
type GatewayTable struct {
	Domain     Domain
	Kubernetes Kubernetes // if set, names of its services lead to the apps as well
	Cluster    string
	Revision   uint64
	Backends   Table[*Backend]    // every exported app, even without a ready instance
	Tunnels    map[string]Tunnels // of the clusters that dial this one
}

// Tunnels are what a cluster that dials this one is called for by them.
type Tunnels struct {
	Apps  Table[struct{}] // that it exports to this cluster
	Heard bool            // it has said which
}

// Tunnelled tells whether an app of another cluster is reached by a tunnel, or may be once that
// cluster is heard. A cluster's apps that it does not export to this one are not, whoever asks.
func (t *GatewayTable) Tunnelled(cluster string, app App) (reached, later bool) {
	tunnels, ok := t.Tunnels[cluster]
	if !ok {
		return false, false
	}
	_, reached = tunnels.Apps.Get(app)
	return reached, !reached && !tunnels.Heard
}

// Lookup finds the backend for a host name from SNI or :authority, and the part of it that the
// name is for. ok is false unless the name is that of an exported app in this cluster, or of its
// part.
//
// The name may lack the cluster. A sidecar without Isthmus dials one name wherever the app is:
// <app>.<namespace>.<domain>, or that of Dapr's service in Kubernetes. At this gateway it means
// this cluster.
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
