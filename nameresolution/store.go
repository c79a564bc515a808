package nameresolution

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/open"
)

// openStore opens the config store that the configuration names.
func (r *Resolver) openStore(configuration map[string]any) (configstore.Store, error) {
	kinds := make(open.Config, len(configuration))
	for name, settings := range configuration {
		switch s := settings.(type) {
		case nil:
			kinds[name] = nil
		case map[string]any:
			kinds[name] = s
		default:
			return nil, fmt.Errorf("store.%s: is %s; want a mapping of its settings", name, kindOf(settings))
		}
	}
	return open.Open(kinds, r.log, r.opts.Stores...)
}
