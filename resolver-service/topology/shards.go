package topology

import "github.com/isthmus-mesh/isthmus/catalog"

// shardsOf is how many shards an app with so many ready instances has: one each, so that
// a caller in another cluster that goes round the shards reaches all of them alike. One
// instance needs none.
func shardsOf(ready int) uint32 {
	if ready < 2 {
		return 0
	}
	return uint32(min(ready, catalog.MaxShards))
}
