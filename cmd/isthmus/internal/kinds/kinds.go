// Package kinds reads the names by which people call the kinds of objects.
package kinds

import (
	"errors"
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
	if near := strict.Nearest(s, append(known, lists...)); slices.Contains(lists, near) {
		return All, fmt.Errorf("unknown kind %q; isthmus %s lists those, which are no objects", s, near)
	} else if near != "" {
		return All, fmt.Errorf("unknown kind %q; did you mean %q?", s, near)
	}
	return All, fmt.Errorf("unknown kind %q; want %s", s, List())
}

// lists are commands that list what is no object.
var lists = []string{"apps", "sidecars", "events", "calls"}

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

// ParseKey reads the name of an object: "namespace/name" or "name.namespace", and "name" alone where
// a namespace is given or the kind has none.
func ParseKey(kind catalog.Kind, s, namespace string) (catalog.Key, error) {
	key := catalog.Key{Kind: kind, Name: s}
	if !kind.Namespaced() {
		return key, api.CheckKey(key)
	}
	in, name, found := strings.Cut(s, "/")
	if !found {
		name, in, found = strings.Cut(s, ".")
	}
	switch {
	case !found && namespace == "":
		return key, fmt.Errorf("%s %q: want namespace/name or name.namespace, or its namespace by -n", kind, s)
	case !found:
		in = namespace
	case namespace != "" && namespace != in:
		return key, fmt.Errorf("%s %q is not in namespace %s; leave -n out", kind, s, namespace)
	}
	key.Namespace, key.Name = in, name
	return key, api.CheckKey(key)
}

// parts parts arguments into a kind and names: KIND NAME..., or KIND/NAME as get -o name prints it.
func parts(args []string) [][2]string {
	var all [][2]string
	for i, arg := range args {
		kind, name, joined := strings.Cut(arg, "/")
		switch {
		case joined && (i == 0 || strings.Contains(args[0], "/")):
			all = append(all, [2]string{kind, name})
		case i > 0:
			all = append(all, [2]string{args[0], arg})
		}
	}
	return all
}

// ParseKeys reads the objects that arguments name, in a namespace if that is not empty.
func ParseKeys(args []string, namespace string) (keys []catalog.Key, err error) {
	for _, part := range parts(args) {
		kind, wrong := Parse(part[0])
		if wrong == nil && kind == All {
			wrong = errors.New("a name needs a kind; \"all\" is none")
		}
		if wrong != nil {
			return nil, wrong
		}
		key, wrong := ParseKey(kind, part[1], namespace)
		keys, err = append(keys, key), errors.Join(err, wrong)
	}
	return keys, err
}
