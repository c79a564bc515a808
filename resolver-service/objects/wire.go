package objects

import (
	"encoding/json"
	"fmt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// headOf reads the key and the revision of an unchecked object.
func headOf(text []byte) (key catalog.Key, revision string, err error) {
	var head struct {
		Kind     catalog.Kind
		Metadata struct{ Namespace, Name, Revision string }
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return catalog.Key{}, "", fmt.Errorf("not an object as JSON: %w", err)
	}
	key = catalog.Key{Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name}
	return key, head.Metadata.Revision, api.CheckKey(key)
}

func storedToWire(s configstore.Stored) *v1alpha1.StoredObject {
	w := &v1alpha1.StoredObject{Key: wire.Key(s.Object.Key()), Json: api.EncodeJSON(s.Object), Source: s.Object.Origin().String()}
	if s.Object.Origin().From == "" {
		w.Revision = s.Revision // nobody can write over a derived object
	}
	return w
}

func pastToWire(p *configstore.Past) *v1alpha1.PastObject {
	w := &v1alpha1.PastObject{Revision: p.Revision, Deleted: p.Deleted}
	if p.Object != nil {
		w.Json = api.EncodeJSON(p.Object)
	}
	if !p.At.IsZero() {
		w.AtUnixMs = p.At.UnixMilli()
	}
	if p.Err != nil {
		w.Unusable = p.Err.Error()
	}
	return w
}

func effectToWire(e *topology.Effect) *v1alpha1.Effect {
	w := &v1alpha1.Effect{App: wire.App(e.App), Before: wire.Decision(&e.Before), After: wire.Decision(&e.After)}
	if e.Caller != (catalog.App{}) {
		w.Caller = wire.App(e.Caller)
	}
	return w
}
