package component

import (
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/configstore/open"
)

// stores are the config stores that a sidecar without a service can read, beside those that
// need no server.
func stores() []open.Kind {
	return []open.Kind{
		open.Of("consul", consul.Open),
	}
}
