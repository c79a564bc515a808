package nameresolution

import (
	"context"
	"errors"
	"log/slog"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
)

// storeConfig says where the objects are: exactly one of its backends.
type storeConfig struct {
	Embedded *pathConfig `json:"embedded"`
}

type pathConfig struct {
	Path string `json:"path"`
}

// openStore opens the config store that the configuration names.
func openStore(_ context.Context, configuration map[string]any, _ *slog.Logger) (configstore.Store, error) {
	var cfg storeConfig
	if errs := decode(configuration, &cfg); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return embedded.Open(cfg.Embedded.Path)
}
