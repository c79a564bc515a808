package topology

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// checked is a zone or a version as a source names it. One that can't be told on is not known.
func checked(name string, check func(string) error) string {
	if check(name) != nil {
		return ""
	}
	return name
}

// labelsOf are the zones or the versions of an app's ready addresses, which are sorted. Of several
// instances at an address, the one with the strongest claim counts.
func (n *node) labelsOf(ready []string, label func(origin) string) *catalog.Labels {
	var best []*instance
	for i := range n.instances {
		is := &n.instances[i]
		if label(is.origin.Value()) == "" {
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
			names[i] = label(is.origin.Value())
		}
	}
	return catalog.NewLabels(names)
}

// labelsLeft are the labels of some of an app's addresses, which are in their order among all.
func labelsLeft(labels *catalog.Labels, all, left []string) *catalog.Labels {
	if labels == nil || len(left) == len(all) {
		return labels
	}
	places := make([]int, 0, len(left))
	for i, address := range all {
		if len(places) < len(left) && address == left[len(places)] {
			places = append(places, i)
		}
	}
	return labels.Of(places)
}

// prefers tells whether a caller may prefer instances of its own zone, of any app.
func (vs *views) prefers(caller *node) bool {
	return vs.cfg.PreferZone || caller.selection != nil && slices.ContainsFunc(caller.selection.Endpoints, func(e catalog.Endpoint) bool {
		return e.Locality == catalog.PreferZone
	})
}
