package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/foreign"
)

// derived is what a Watch has derived from resources of other standards.
type derived struct {
	sorts     []*documents
	set       *foreign.Set
	objects   map[catalog.Key]catalog.Object
	outranked map[catalog.Key]configstore.Refusal // by a written object of the same name
	failed    map[string]error                    // why resources can't be read
}

func newDerived(sorts []*documents) *derived {
	return &derived{sorts, foreign.NewSet(), map[catalog.Key]catalog.Object{}, map[catalog.Key]configstore.Refusal{}, map[string]error{}}
}

// take takes news, and returns the keys of the objects that may be other ones now.
func (d *derived) take(n documentNews) map[catalog.Key]bool {
	touched := map[catalog.Key]bool{}
	for id, document := range n.documents {
		keys := d.set.Delete
		if document != nil {
			keys = func(foreign.ID) []catalog.Key { return d.set.Put(document) }
		}
		for _, key := range keys(id) {
			touched[key] = true
		}
	}
	for name, err := range n.failed {
		if d.failed[name] = err; err == nil {
			delete(d.failed, name)
		}
	}
	return touched
}

// derive adds to a change of written objects what is derived, where nothing is written.
func (w *watch) derive(c *configstore.Change, touched map[catalog.Key]bool) {
	d := w.derived
	for key := range touched {
		if _, there := w.revisions[key]; key.Kind == catalog.KindCluster {
			for _, other := range d.set.Cluster(key.Name, there) {
				touched[other] = true
			}
		}
	}
	for _, key := range foreign.Sorted(touched) {
		object := d.set.Derive(key)
		was, had := d.objects[key]
		_, written := w.revisions[key]
		delete(d.outranked, key)
		delete(d.objects, key)
		switch {
		case written && object != nil:
			d.outranked[key] = configstore.Refusal{Where: object.Origin().Of(key), Err: foreign.Outranked(object)}
		case object != nil:
			d.objects[key] = object
			c.Deleted = slices.DeleteFunc(c.Deleted, func(k catalog.Key) bool { return k == key })
			if !reflect.DeepEqual(was, object) {
				c.Objects = append(c.Objects, configstore.Stored{Object: object, Revision: revisionOf(object)})
			}
		case had && !written:
			c.Deleted = append(c.Deleted, key)
		}
	}
}

// revisionOf is the same for the same derived object.
func revisionOf(object catalog.Object) string {
	sum := sha256.Sum256(api.EncodeJSON(object))
	return hex.EncodeToString(sum[:8])
}

// refused is what is not taken as it is, and why.
func (d *derived) refused() (all []configstore.Refusal) {
	for _, r := range d.outranked {
		all = append(all, r)
	}
	for _, p := range d.set.Problems() {
		all = append(all, configstore.Refusal{Where: p.Document.String(), Err: p.Err})
	}
	for name, err := range d.failed {
		all = append(all, configstore.Refusal{Where: name, Err: err})
	}
	return all
}
