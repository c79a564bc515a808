package main

import (
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/configstore/dapr"
	"github.com/isthmus-mesh/isthmus/configstore/etcd"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes"
	"github.com/isthmus-mesh/isthmus/configstore/open"
)

// stores returns the config stores with a server that a sidecar can read without a resolver service.
// daprd links their clients anyway.
func stores() []open.Kind {
	return []open.Kind{
		open.Of("consul", consul.Open),
		open.Of("etcd", etcd.Open),
		open.Of("kubernetes", kubernetes.Open),
		open.Of("dapr", dapr.Open),
	}
}
