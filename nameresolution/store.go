package nameresolution

import (
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/open"
)

// openStore opens the config store that the configuration names, for this app's part
// of it.
func (r *Resolver) openStore(configuration map[string]any) (configstore.Store, error) {
	return open.Open(configuration, configstore.Scope{App: r.self.App}, r.log, r.opts.Stores...)
}
