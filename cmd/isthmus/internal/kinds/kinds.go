// Package kinds reads the names by which people call the kinds of objects.
package kinds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// All stands for every kind.
const All catalog.Kind = ""

// Parse reads a kind in upper or lower case, singular, plural or short.
func Parse(s string) (catalog.Kind, error) {
	known := []string{"all"}
	for _, d := range catalog.Definitions() {
		names := []string{d.Plural, d.Singular, d.Short}
		if slices.Contains(names, strings.ToLower(s)) {
			return d.Kind, nil
		}
		known = append(known, names...)
	}
	if strings.EqualFold(s, "all") {
		return All, nil
	}
	if near := strict.Nearest(s, known); near != "" {
		return All, fmt.Errorf("unknown kind %q; did you mean %q?", s, near)
	}
	return All, fmt.Errorf("unknown kind %q; want %s", s, List())
}

// List says what kinds there are, with their short names.
func List() string {
	var all []string
	for _, d := range catalog.Definitions() {
		all = append(all, d.Plural+" ("+d.Short+")")
	}
	return strings.Join(all, ", ") + " or all"
}

// Completions are the names that a shell offers.
func Completions() []string {
	var all []string
	for _, d := range catalog.Definitions() {
		all = append(all, d.Plural)
	}
	return append(all, "all")
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
