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

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/file"
)

// Config is a "store" as a configuration file or a Dapr component has it: one kind
// with its settings, such as {embedded: {path: data/isthmus.db}}.
type Config map[string]map[string]any

// Kind is a sort of store.
type Kind struct {
	Name     string
	Settings []string // the names of all its settings
	Open     func(settings map[string]any, log *slog.Logger) (configstore.ReadWriter, error)
}

// Builtin is the kinds that need no server: embedded and file.
func Builtin() []Kind {
	return []Kind{
		{"embedded", []string{"path"}, func(settings map[string]any, _ *slog.Logger) (configstore.ReadWriter, error) {
			path, err := Text(settings, "path")
			if err != nil {
				return nil, err
			}
			return opened(embedded.Open(path))
		}},
		{"file", []string{"path"}, func(settings map[string]any, log *slog.Logger) (configstore.ReadWriter, error) {
			path, err := Text(settings, "path")
			if err != nil {
				return nil, err
			}
			return opened(file.Open(path, log))
		}},
	}
}

// opened keeps a nil store with an error from becoming an interface that is not nil.
func opened[S configstore.ReadWriter](s S, err error) (configstore.ReadWriter, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Open opens the store that a configuration names, of the built-in kinds and those
// given.
func Open(c Config, log *slog.Logger, more ...Kind) (configstore.ReadWriter, error) {
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
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("store: unknown kind %q; %s", name, hint(name, names))
		}
		for setting := range settings {
			if !slices.Contains(kinds[i].Settings, setting) {
				return nil, fmt.Errorf("store.%s: unknown setting %q; %s", name, setting, hint(setting, kinds[i].Settings))
			}
		}
		s, err := kinds[i].Open(settings, log)
		if err != nil {
			return nil, fmt.Errorf("store.%s: %w", name, err)
		}
		return s, nil
	}
	return nil, nil // not reached: there is one
}

func hint(name string, names []string) string {
	if near := api.Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "want one of " + strings.Join(names, ", ")
}

// Text is a setting that must be there, and be a string. The value is in no error: it
// may be a secret.
func Text(settings map[string]any, name string) (string, error) {
	value, there := settings[name]
	s, ok := value.(string)
	switch {
	case !there:
		return "", fmt.Errorf("%s is missing; give it a value", name)
	case !ok || s == "":
		return "", fmt.Errorf("%s is not a string with something in it; put it in quotes", name)
	}
	return s, nil
}
