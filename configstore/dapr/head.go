package dapr

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// headLimit is how long a head is, whatever happens: a NOTIFY of PostgreSQL carries 8,000 bytes.
const headLimit = 3500

func parseHead(text string) (configstore.Head, bool) { return configstore.ParseHead(text, 0) }

// emptyVersion is the version of a store that holds nothing at all, not even a head.
const emptyVersion configstore.Version = "empty"

// versionOf is a version for readers: of a state in which objects, or a head, were there.
func versionOf(text string, objects int) configstore.Version {
	h, ok := parseHead(text)
	switch {
	case ok && len(h.Batches) > 0:
		return configstore.Version(fmt.Sprintf("%d-%s", h.Revision(), h.Batches[0].Nonce))
	case text == "" && objects == 0:
		return emptyVersion
	}
	return "unmarked"
}
