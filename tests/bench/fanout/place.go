package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// cluster is the name of the cluster that is measured.
const cluster = "west"

// place is a directory with what the service finds when it starts.
type place string

func (p place) store() string    { return filepath.Join(string(p), "isthmus.db") }
func (p place) snapshot() string { return filepath.Join(string(p), "instances.json") }

func (p place) certificates() resolver.Certificates { return resolver.Certificates(p) }

// fill writes the fleet's selections into a config store, and its instances into the
// file from which a service takes over those of its former life. Only app 0 has none
// there: its one instance is the one that changes.
func (p place) fill(ctx context.Context, f fleet.Fleet) (err error) {
	store, err := embedded.Open(p.store())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	objects := f.Objects()
	writes := make([]configstore.Write, len(objects))
	for i := range objects {
		writes[i].Object = objects[i]
	}
	if _, err := store.Write(ctx, writes...); err != nil {
		return err
	}
	return p.saveInstances(f.All()[f.Instances:])
}

// saveInstances writes the file that package stream reads; see its snapshot.go.
func (p place) saveInstances(all []catalog.Instance) error {
	type saved struct {
		Namespace string         `json:"namespace"`
		App       string         `json:"app"`
		ID        string         `json:"id"`
		Address   netip.AddrPort `json:"address"`
	}
	list := make([]saved, len(all))
	for i, instance := range all {
		list[i] = saved{instance.App.Namespace, instance.App.ID, instance.ID, instance.Address}
	}
	text, err := json.Marshal(map[string]any{"version": 1, "revision": 1, "instances": list})
	if err != nil {
		return fmt.Errorf("encode the instances: %w", err)
	}
	return os.WriteFile(p.snapshot(), text, 0o600)
}
