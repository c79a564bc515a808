package demo

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
)

// clusterKey says which cluster a span is from, on the span or on its resource.
const clusterKey = "k8s.cluster.name"

func clusterOf(s *collector.Span) string {
	if cluster := s.Attributes[clusterKey]; cluster != "" {
		return cluster
	}
	return s.Resource[clusterKey]
}

// ofIsthmus begins the attributes that a lookup's span has.
const ofIsthmus = "isthmus."

func hasLookup(spans []collector.Span) bool {
	return slices.ContainsFunc(spans, func(s collector.Span) bool { return s.Attributes[ofIsthmus+"outcome"] != "" })
}

// shown are spans as the tree draws them, with what the lookup's span says of it.
func shown(spans []collector.Span) []span {
	list := make([]span, len(spans))
	for i := range spans {
		s := &spans[i]
		list[i] = span{
			id: s.ID, parent: s.Parent, name: s.Name, service: s.Resource["service.name"], cluster: clusterOf(s),
			start: time.Unix(0, int64(s.Start)), end: time.Unix(0, int64(s.End)),
		}
		for _, key := range slices.Sorted(maps.Keys(s.Attributes)) {
			if strings.HasPrefix(key, ofIsthmus) {
				list[i].notes = append(list[i].notes, key+" = "+s.Attributes[key])
			}
		}
	}
	return list
}
