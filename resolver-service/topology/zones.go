package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// knownZone is a zone as a source names it. One that can't be told on is not known.
func knownZone(name string) string {
	if catalog.CheckZone(name) != nil {
		return ""
	}
	return name
}

// zonesOf are the zones of an app's ready addresses, which are sorted. Of several
// instances at an address, the one with the strongest claim counts.
func (n *node) zonesOf(ready []string) *catalog.Zones {
	var best []*instance
	for i := range n.instances {
		is := &n.instances[i]
		if is.origin.Value().zone == "" {
			continue
		}
		at, found := slices.BinarySearch(ready, is.text())
		if !found {
			continue
		}
		if best == nil {
			best = make([]*instance, len(ready))
		}
		if had := best[at]; had == nil || n.claim(had).compare(n.claim(is)) <= 0 {
			best[at] = is
		}
	}
	if best == nil {
		return nil
	}
	names := make([]string, len(best))
	for i, is := range best {
		if is != nil {
			names[i] = is.origin.Value().zone
		}
	}
	return catalog.NewZones(names)
}

// zonesLeft are the zones of some of an app's addresses, which are in their order among all.
func zonesLeft(zones *catalog.Zones, all, left []string) *catalog.Zones {
	if zones == nil || len(left) == len(all) {
		return zones
	}
	places := make([]int, 0, len(left))
	for i, address := range all {
		if len(places) < len(left) && address == left[len(places)] {
			places = append(places, i)
		}
	}
	return zones.Of(places)
}

// prefers tells whether a caller may prefer instances of its own zone, of any app.
func (vs *views) prefers(caller *node) bool {
	return vs.cfg.PreferZone || caller.selection != nil && slices.ContainsFunc(caller.selection.Endpoints, func(e catalog.Endpoint) bool {
		return e.Locality == catalog.PreferZone
	})
}
