package wire

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// shards are the addresses of a route's shards, which the message leaves out. The one
// that it has must be the app's own in that cluster: a caller keeps one connection for an
// address, so names of two apps must never be the same.
func shards(app catalog.App, m *pb.ViewRoute) ([]string, error) {
	switch n := m.GetShards(); {
	case n > catalog.MaxShards:
		return nil, fmt.Errorf("%d shards; at most %d are taken", n, catalog.MaxShards)
	case !m.GetGateway() || len(m.GetAddresses()) != 1:
		return nil, fmt.Errorf("%d shards of a route that leads through no gateway, or to %d addresses; want a gateway route to one", n, len(m.GetAddresses()))
	}
	address, cluster := m.GetAddresses()[0], m.GetCluster()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%d shards of %q: %w", m.GetShards(), address, err)
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return nil, fmt.Errorf("%d shards of %q: port %q is not a number from 1 to 65535", m.GetShards(), address, port)
	}
	if err := catalog.CheckCluster(cluster); err != nil {
		return nil, err
	}
	domain, ok := strings.CutPrefix(host, app.ID+"."+app.Namespace+"."+cluster+".")
	if !ok || catalog.CheckDomain(domain) != nil {
		return nil, fmt.Errorf("%d shards of %q, which is no host name of %s in cluster %s", m.GetShards(), address, app, cluster)
	}
	d := catalog.Domain(domain)
	if err := d.CheckHost(app, cluster); err != nil {
		return nil, err
	}
	return d.GatewayAddresses(app, cluster, port, int(m.GetShards())), nil
}
