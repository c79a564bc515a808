package component

import (
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/configstore/dapr"
	"github.com/isthmus-mesh/isthmus/configstore/etcd"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes"
	"github.com/isthmus-mesh/isthmus/configstore/open"
)

// stores are the config stores that a sidecar without a service can read, beside those that
// need no server. daprd links the clients of all of them anyway.
func stores() []open.Kind {
	return []open.Kind{
		open.Of("consul", consul.Open),
		open.Of("etcd", etcd.Open),
		open.Of("kubernetes", kubernetes.Open),
		open.Of("dapr", dapr.Open),
	}
}
