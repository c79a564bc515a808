package show

import (
	"fmt"
	"io"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// WarnOfPorts writes a line for each gateway of one app, of a Cluster among objects, that is
// not on the port that sidecars have in Kubernetes. It is no mistake, since they can be told
// to have another (dapr.io/internal-grpc-port).
func WarnOfPorts(w io.Writer, all []catalog.Object) {
	for _, object := range all {
		cluster, ok := object.(*catalog.Cluster)
		if !ok {
			continue
		}
		for _, g := range cluster.AppGateways {
			if g.Port() == catalog.DaprPort {
				continue
			}
			fmt.Fprintf(w, "warning: %s:%d: %s: the gateway %s for %s is on port %s; callers without a server name dial the port that their own sidecars listen on, which is %s in Kubernetes unless dapr.io/internal-grpc-port says otherwise\n",
				cluster.Source.File, cluster.Source.Line, cluster.Key(), g.Address, g.App, g.Port(), catalog.DaprPort)
		}
	}
}
