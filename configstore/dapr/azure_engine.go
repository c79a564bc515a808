//go:build clouds || stablecomponents || allcomponents

package dapr

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/dapr/components-contrib/configuration"
	"github.com/dapr/components-contrib/configuration/azure/appconfig"
	"github.com/dapr/components-contrib/metadata"
)

// azureEngine reads by Dapr's interface alone, as any store could be read that has no
// engine of its own. It lists in few requests, so no index is needed; the head is written
// by whoever writes the objects, to any text that differs, and is Dapr's sentinel key.
type azureEngine struct {
	settings
	store configuration.Store
}

func connectAzure(ctx context.Context, s settings) (engine, error) {
	store := appconfig.NewAzureAppConfigurationStore(s.logger())
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := store.Init(ctx, configuration.Metadata{Base: metadata.Base{Name: s.component.name, Properties: maps.Clone(s.component.properties)}})
	if err != nil {
		return nil, err
	}
	return &azureEngine{s, store}, nil
}

func (a *azureEngine) close() { _ = a.store.Close() }

// list reads the head first: what is written meanwhile shows by it, and a server that is
// gone shows in little time.
func (a *azureEngine) list(ctx context.Context) (snapshot, error) {
	first, err := a.some(ctx, nil)
	if err != nil {
		return snapshot{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	answer, err := a.store.Get(ctx, &configuration.GetRequest{Metadata: a.requestMetadata()})
	if err != nil {
		return snapshot{}, err
	}
	all := snapshot{head: first.head, pairs: map[string]held{}}
	for key, item := range answer.Items {
		if path, ok := a.names.path(key); ok {
			all.pairs[path] = held{value: item.Value, version: item.Version}
		}
	}
	return all, nil
}

// some asks for the head alone, and for everything where paths are wanted: the interface
// tells a key that is not there only by an error.
func (a *azureEngine) some(ctx context.Context, paths []string) (snapshot, error) {
	if len(paths) > 0 {
		return a.list(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := a.names.key(headPath)
	answer, err := a.store.Get(ctx, &configuration.GetRequest{Keys: []string{key}, Metadata: a.requestMetadata()})
	if err != nil {
		return snapshot{}, fmt.Errorf("%w; there has to be a key %s, which is set to another text after each change: az appconfig kv set --key %s --value 1", err, key, key)
	}
	item := answer.Items[key]
	if item == nil {
		return snapshot{}, errors.New("the answer has no " + key)
	}
	return snapshot{head: item.Value}, nil
}
