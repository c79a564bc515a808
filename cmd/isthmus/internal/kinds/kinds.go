// Package kinds reads the names by which people call the kinds of objects.
package kinds

import (
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/strict"
)

// All stands for every kind.
const All catalog.Kind = ""

// names are what a kind is called besides its own name, in lower case.
var names = []struct {
	kind  catalog.Kind
	names []string
}{
	{catalog.KindAppEndpoints, []string{"appendpoints", "appendpoint", "ae"}},
	{catalog.KindAppExport, []string{"appexports", "appexport", "ax"}},
	{catalog.KindAppInstance, []string{"appinstances", "appinstance", "ai"}},
	{catalog.KindCluster, []string{"clusters", "cluster", "cl"}},
	{All, []string{"all"}},
}

// Parse reads a kind in upper or lower case, singular, plural or short.
func Parse(s string) (catalog.Kind, error) {
	var known []string
	for _, k := range names {
		for _, name := range k.names {
			if strings.EqualFold(s, name) {
				return k.kind, nil
			}
			known = append(known, name)
		}
	}
	err := fmt.Errorf("unknown kind %q; want appendpoints (ae), appexports (ax), appinstances (ai), clusters (cl) or all", s)
	if near := strict.Nearest(s, known); near != "" {
		err = fmt.Errorf("unknown kind %q; did you mean %q?", s, near)
	}
	return All, err
}

// Completions are the names that a shell offers.
func Completions() []string {
	var all []string
	for _, k := range names {
		all = append(all, k.names[0])
	}
	return all
}

// ParseKey reads the name of an object: "namespace/name", or "name" for a Cluster.
func ParseKey(kind catalog.Kind, s string) (catalog.Key, error) {
	key := catalog.Key{Kind: kind, Name: s}
	if kind.Namespaced() {
		ns, name, ok := strings.Cut(s, "/")
		if !ok {
			return key, fmt.Errorf("%s %q: want namespace/name", kind, s)
		}
		key.Namespace, key.Name = ns, name
	}
	return key, api.CheckKey(key)
}
