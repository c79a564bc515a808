package gateway

import (
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// destination is where connections for a name go.
type destination struct {
	app       catalog.App // zero: this cluster's resolver service
	instances []string    // "host:port", at least one
	revision  uint64      // of the table that said so
}

// route is the one place where a name becomes a destination. Names with more
// structure (the shards of an app) belong here.
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
	if g.cfg.Peer != "" && isHost(in.host, table.Domain.PeerHost(table.Cluster)) {
		return destination{instances: []string{g.cfg.Peer}, revision: table.Revision}, nil
	}
	b, _, ok := table.Lookup(in.host)
	if !ok {
		return refuse(unknownName)
	}
	if len(b.Instances) == 0 {
		d, r := refuse(noInstance)
		r.app, r.revision = b.App, table.Revision
		return d, r
	}
	return destination{app: b.App, instances: b.Instances, revision: table.Revision}, nil
}

// isHost compares host names as DNS does.
func isHost(got, want string) bool {
	return strings.EqualFold(strings.TrimSuffix(got, "."), want)
}
