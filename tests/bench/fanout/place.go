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
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
)

// cluster is the name of the cluster that is measured.
const cluster = "west"

// trustDomain is that of the certificates.
const trustDomain = "public"

// place is a directory with what the service finds when it starts.
type place string

func (p place) store() string    { return filepath.Join(string(p), "isthmus.db") }
func (p place) snapshot() string { return filepath.Join(string(p), "instances.json") }
func (p place) ca() string       { return filepath.Join(string(p), "ca.crt") }

// identity is how an app identifies itself: by its files, or not at all where there
// are none.
func (p place) identity(app catalog.App) identity.Config {
	if _, err := os.Stat(p.ca()); err != nil {
		return identity.Config{Insecure: true}
	}
	base := filepath.Join(string(p), app.ID)
	return identity.Config{Files: &identity.Files{Cert: base + ".crt", Key: base + ".key", CA: p.ca()}}
}

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

// issue makes certificates for apps.
func (p place) issue(apps []catalog.App) error {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return err
	}
	for _, app := range apps {
		cert, key, err := authority.Leaf(trustDomain, app)
		if err != nil {
			return err
		}
		base := filepath.Join(string(p), app.ID)
		if err := errors.Join(os.WriteFile(base+".crt", cert, 0o600), os.WriteFile(base+".key", key, 0o600)); err != nil {
			return err
		}
	}
	return os.WriteFile(p.ca(), authority.Anchors(), 0o600)
}
