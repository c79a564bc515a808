// Package open opens the config store that a configuration names. It knows the kinds
// that cost nothing to link; a program that has others hands them in, so that whoever
// needs none of them does not link their clients.
package open

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Config is a "store" as a configuration file or a Dapr component has it: one kind
// with its settings, such as {embedded: {path: data/isthmus.db}}.
type Config map[string]any

// Kind is a sort of store.
type Kind struct {
	Name string
	// Open opens a store that has these settings, untyped.
	Open func(settings any, scope configstore.Scope, log *slog.Logger) (configstore.ReadWriter, error)
}

// Of is the kind of a backend whose configuration is a C, which is decoded by its json
// tags.
func Of[C any, S configstore.ReadWriter](name string, open func(C, configstore.Scope, *slog.Logger) (S, error)) Kind {
	return Kind{name, func(from any, scope configstore.Scope, log *slog.Logger) (configstore.ReadWriter, error) {
		var c C
		if from == nil {
			from = map[string]any{} // the backend says what is missing
		}
		if errs := strict.DecodeValue("store."+name, from, &c); len(errs) > 0 {
			return nil, errs
		}
		s, err := open(c, scope, log)
		if err != nil {
			return nil, strict.Below("store."+name, err)
		}
		return s, nil
	}}
}

// Builtin is the kinds that need no server: embedded and file.
func Builtin() []Kind { return []Kind{Of("embedded", Embedded), Of("file", File)} }

// Embedded opens an embedded store for a reader of so much of it.
func Embedded(c embedded.Config, scope configstore.Scope, _ *slog.Logger) (configstore.ReadWriter, error) {
	if err := checkPath(c.Path); err != nil {
		return nil, err
	}
	s, err := embedded.Open(c.Path)
	return narrow(s, scope, err)
}

// File opens a store of files for a reader of so much of it.
func File(c file.Config, scope configstore.Scope, log *slog.Logger) (configstore.ReadWriter, error) {
	if err := checkPath(c.Path); err != nil {
		return nil, err
	}
	s, err := file.Open(c.Path, log)
	return narrow(s, scope, err)
}

func checkPath(path string) error {
	if path == "" {
		return &strict.Error{Path: "path", What: "is missing", Fix: "give it a value"}
	}
	return nil
}

// narrow keeps a nil store with an error from becoming an interface that is not nil.
func narrow(s configstore.ReadWriter, scope configstore.Scope, err error) (configstore.ReadWriter, error) {
	if err != nil {
		return nil, err
	}
	return configstore.Narrow(s, scope), nil
}

// Open opens the store that a configuration names, of the built-in kinds and those
// given. What of it is watched is the scope.
func Open(c Config, scope configstore.Scope, log *slog.Logger, more ...Kind) (configstore.ReadWriter, error) {
	kinds := append(Builtin(), more...)
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	if len(c) != 1 {
		return nil, fmt.Errorf("store: names %d kinds of store (%s); want one of %s, such as {embedded: {path: data/isthmus.db}}",
			len(c), strings.Join(slices.Sorted(maps.Keys(c)), ", "), strings.Join(names, ", "))
	}
	for name, settings := range c {
		if i := slices.Index(names, name); i >= 0 {
			return kinds[i].Open(settings, scope, log)
		}
		return nil, fmt.Errorf("store: unknown kind %q; %s", name, strict.Hint(name, names, "want one of "+strings.Join(names, ", ")))
	}
	return nil, nil // not reached: there is one
}
