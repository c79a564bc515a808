package gateway

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// noShard is the shard of a name that names none.
const noShard = -1

// destination is where connections for a name go.
type destination struct {
	app       catalog.App    // zero: this cluster's resolver service, which has no instances here
	instances []string       // "host:port", at least one for an app
	shard     int            // that was named, or noShard
	first     int            // the place in instances of the shard's own
	revision  uint64         // of the table that said so
	take      func(net.Conn) // takes the connection over, where app is zero
	tunnel    string         // the cluster of the app, which is reached by a tunnel; empty: this one
}

// route is [Gateway.route], and leads nowhere but to the one app where there is but one.
// Who names nobody means that one; an address is the name of nobody.
func (s *serving) route(in greeting) (destination, *refusal) {
	if s.only == (catalog.App{}) {
		return s.Gateway.route(in)
	}
	named := in
	if _, err := netip.ParseAddr(in.host); err == nil || in.host == "" {
		if table, ok := s.cfg.Table.Load(); ok && table != nil {
			named.host = table.Domain.Host(s.only, table.Cluster)
		}
	}
	to, refused := s.Gateway.route(named)
	if refused == nil && (to.app != s.only || to.tunnel != "") {
		return destination{}, &refusal{reason: unknownName, host: in.host, stream: in.stream}
	}
	return to, refused
}

// ofPeers tells whether the destination is this cluster's resolver service.
func (d *destination) ofPeers() bool { return d.app == catalog.App{} }

// route is the one place where a name becomes a destination. A number in front of an
// app's name is a shard of it; any number has an instance, since callers may know a
// number of shards that is past or to come. An instance's name has that instance alone.
func (g *Gateway) route(in greeting) (destination, *refusal) {
	refuse := func(r reason) (destination, *refusal) {
		return destination{}, &refusal{reason: r, host: in.host, stream: in.stream}
	}
	if in.host == "" {
		return refuse(noName)
	}
	table, ok := g.cfg.Table.Load()
	if !ok || table == nil {
		return refuse(notReady)
	}
	// Another cluster's name leads here too: our certificate tells that client which cluster
	// this is. Without TLS nobody could tell who asks, so that is refused.
	if g.cfg.Peers != nil && in.stream == 0 && table.Domain.IsPeerHost(in.host) {
		return destination{shard: noShard, revision: table.Revision, take: g.cfg.Peers}, nil
	}
	if g.cfg.Tunnels != nil && in.stream == 0 && table.Domain.IsTunnelHost(table.Cluster, in.host) {
		return destination{shard: noShard, revision: table.Revision, take: g.cfg.Tunnels}, nil
	}
	if g.cfg.Link != nil && in.stream == 0 && table.Domain.IsLinkHost(table.Cluster, in.host) && g.cfg.Linking() {
		return destination{shard: noShard, revision: table.Revision, take: g.cfg.Link}, nil
	}
	b, part, ok := table.Lookup(in.host)
	if !ok {
		app, cluster, _, ok := table.Domain.ParsePart(in.host)
		if ok && in.stream == 0 && g.cfg.OpenTunnel != nil {
			reached, later := table.Tunnelled(cluster, app)
			if reached {
				return destination{app: app, shard: noShard, revision: table.Revision, tunnel: cluster}, nil
			}
			if later {
				return refuse(unheard)
			}
		}
		if ok && cluster != table.Cluster {
			_, r := refuse(otherCluster)
			r.err = fmt.Errorf("the name is for cluster %s; this gateway is %s's", cluster, table.Cluster)
			return destination{}, r
		}
		return refuse(unknownName)
	}
	instances := b.Instances
	if token, ok := part.Instance(); ok {
		// Who names an instance goes on elsewhere by itself where that one is not ready.
		instances = nil
		if i, ok := b.Instance(token); ok {
			instances = b.Instances[i : i+1]
		}
	}
	if len(instances) == 0 {
		d, r := refuse(noInstance)
		r.app, r.revision = b.App, table.Revision
		return d, r
	}
	shard, first := noShard, 0
	if n, ok := part.Shard(); ok {
		shard = n
		first, _ = b.Shard(n)
	}
	return destination{
		app: b.App, instances: instances, shard: shard, first: min(first, len(instances)-1), revision: table.Revision,
	}, nil
}
