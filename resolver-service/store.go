package resolverservice

import (
	"log/slog"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/file"
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
	if s.File != nil {
		return opened(file.Open(s.File.Path, log))
	}
	return opened(embedded.Open(s.Embedded.Path))
}

// opened keeps a backend that failed to open from looking like one.
func opened[S configstore.Store](store S, err error) (configstore.Store, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}
