package show

import (
	"io"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// WarnOfGateways writes a line for each gateway of one app, of the Cluster objects among
// others, that most likely leads nowhere good. It is no mistake of one object.
func WarnOfGateways(w io.Writer, all []catalog.Object) {
	first := map[string]listing{}
	for _, object := range all {
		cluster, ok := object.(*catalog.Cluster)
		if !ok {
			continue
		}
		for _, address := range cluster.Gateways {
			warnOfDoubled(w, first, address, listing{cluster, catalog.App{}})
		}
		for _, g := range cluster.AppGateways {
			warnOfDoubled(w, first, g.Address, listing{cluster, g.App})
			warnOfPort(w, cluster, g)
		}
	}
}

// warnOfPort tells of one that is not on the port that sidecars have in Kubernetes: they can
// be told to have another (dapr.io/internal-grpc-port).
func warnOfPort(w io.Writer, cluster *catalog.Cluster, g catalog.AppGateway) {
	if g.Port() == catalog.DaprPort {
		return
	}
	Say(w, "warning: %s:%d: %s: the gateway %s for %s is on port %s; callers without a server name dial the port that their own sidecars listen on, which is %s in Kubernetes unless dapr.io/internal-grpc-port says otherwise\n",
		cluster.Source.File, cluster.Source.Line, cluster.Key(), g.Address, g.App, g.Port(), catalog.DaprPort)
}

// listing is a gateway of a Cluster object; of all apps if it has none.
type listing struct {
	cluster *catalog.Cluster
	app     catalog.App
}

func (l listing) whose() string {
	if l.app == (catalog.App{}) {
		return "all apps"
	}
	return l.app.String()
}

// warnOfDoubled tells of an address in two objects that leads to one app: within one object it
// is refused, and one of the two may be on its way out.
func warnOfDoubled(w io.Writer, first map[string]listing, address string, now listing) {
	before, there := first[address]
	if !there {
		first[address] = now
		return
	}
	if none := (catalog.App{}); before.app == none && now.app == none {
		return
	}
	Say(w, "warning: %s:%d: %s: the gateway %s for %s is in %s too, for %s, and leads to one app of one cluster; correct spec.gateways of one of the two\n",
		now.cluster.Source.File, now.cluster.Source.Line, now.cluster.Key(), address, now.whose(), before.cluster.Key(), before.whose())
}
