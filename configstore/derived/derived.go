// Package derived adds to a config store what derives from documents of other standards.
package derived

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
)

// Objects is what one Watch derives from documents of other standards, and delivers beside the
// written objects. Nobody else sees derived objects: a Reader has the written ones. It is for one
// goroutine.
type Objects struct {
	set       *smimcs.Set
	objects   map[catalog.Key]configstore.Stored
	outranked map[catalog.Key]configstore.Refusal // by a written object of the same name
	touched   map[catalog.Key]bool                // since the last change
	noted     map[smimcs.ID][]string              // notes that were logged
	log       *slog.Logger
}

// New makes Objects without documents, which logs the parts of documents that have no equivalent.
func New(log *slog.Logger) *Objects {
	return &Objects{
		set: smimcs.NewSet(), objects: map[catalog.Key]configstore.Stored{}, outranked: map[catalog.Key]configstore.Refusal{},
		touched: map[catalog.Key]bool{}, noted: map[smimcs.ID][]string{}, log: log,
	}
}

// Take takes a document of this name; nil where it was deleted.
func (d *Objects) Take(id smimcs.ID, document *smimcs.Document) {
	if document == nil {
		delete(d.noted, id)
		d.touch(d.set.Delete(id))
		return
	}
	d.touch(d.set.Put(document))
	if !slices.Equal(d.noted[id], document.Notes) {
		d.noted[id] = document.Notes
		for _, note := range document.Notes {
			d.log.Info("part of a document is ignored", "object", document.String(), "note", note)
		}
	}
}

func (d *Objects) touch(keys []catalog.Key) {
	for _, key := range keys {
		d.touched[key] = true
	}
}

// Add adds to a change of written objects what derives where nothing is written. keys are of the
// objects that were written, deleted or refused; written tells of any key whether there is an
// object now, also a refused one.
func (d *Objects) Add(c *configstore.Change, keys func(func(catalog.Key) bool), written func(catalog.Key) bool) {
	for key := range keys {
		d.touched[key] = true
		if key.Kind == catalog.KindCluster {
			d.touch(d.set.Cluster(key.Name, written(key)))
		}
	}
	for key := range d.touched {
		object, is := d.set.Derive(key), written(key)
		was, had := d.objects[key]
		delete(d.outranked, key)
		delete(d.objects, key)
		switch {
		case object != nil && is:
			d.outranked[key] = configstore.Refusal{Where: object.Origin().Of(key), Err: smimcs.Outranked(object)}
		case object != nil:
			d.objects[key] = derivedOf(object)
			if !c.Full && !reflect.DeepEqual(was, d.objects[key]) {
				c.Objects = append(c.Objects, d.objects[key])
			}
		case had && !is:
			c.Deleted = append(c.Deleted, key)
		}
	}
	c.Deleted = slices.DeleteFunc(c.Deleted, func(key catalog.Key) bool {
		_, stands := d.objects[key]
		return stands
	})
	if c.Full {
		c.Deleted = nil
		for _, stored := range d.objects {
			c.Objects = append(c.Objects, stored)
		}
	}
	clear(d.touched)
}

// derivedOf is an object with a revision that is the same for the same object.
func derivedOf(object catalog.Object) configstore.Stored {
	sum := sha256.Sum256(api.EncodeJSON(object))
	return configstore.Stored{Object: object, Revision: hex.EncodeToString(sum[:8])}
}

// Refused lists the documents that are not taken as they are, and why.
func (d *Objects) Refused() (all []configstore.Refusal) {
	for _, r := range d.outranked {
		all = append(all, r)
	}
	for _, p := range d.set.Problems() {
		all = append(all, configstore.Refusal{Where: p.Document.String(), Err: p.Err})
	}
	return all
}
