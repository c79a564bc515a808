package etcd

import (
	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
)

// Config is the settings of a store in etcd.
type Config = etcdclient.Config

// maxObject is how many bytes of JSON an object may have.
func maxObject(c Config) int {
	return min(c.MaxRequestBytes-etcdclient.RequestOverhead, api.MaxObjectBytes)
}
