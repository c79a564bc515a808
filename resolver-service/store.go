package resolverservice

import (
	"log/slog"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
)

// name is what status, metrics and errors call the store.
func (s Store) name() string {
	if s.File != nil {
		return "file"
	}
	return "embedded"
}

// openStore opens the backend that the configuration names.
func openStore(s Store, log *slog.Logger) (configstore.Store, error) {
	store, err := embedded.Open(s.Embedded.Path)
	if err != nil {
		return nil, err
	}
	return store, nil
}
