package api

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Manifest is an object as a user wrote it, with the revision of the object that it was
// made from: its metadata.revision, empty where there is none.
type Manifest struct {
	catalog.Object
	Revision string
}

// DecodeYAML reads the objects of a YAML file without their revisions.
func DecodeYAML(file string, data []byte) ([]catalog.Object, Errors) {
	manifests, errs := DecodeManifests(file, data)
	if manifests == nil {
		return nil, errs
	}
	objects := make([]catalog.Object, len(manifests))
	for i, m := range manifests {
		objects[i] = m.Object
	}
	return objects, errs
}

// DecodeManifests reads the objects of a YAML file, of which each document is one, with their
// revisions. file names it in errors and in the objects' Source.
//
// Good objects are returned beside the mistakes of bad ones. If the file is not YAML at all, or is
// cut off, no object is returned, and the error has no key.
func DecodeManifests(file string, data []byte) ([]Manifest, Errors) {
	return DecodeFile(file, data, nil)
}

// Other takes a document that is no object of Isthmus, and tells whether it knows it.
type Other func(root *strict.Node) bool

// DecodeFile is [DecodeManifests] of a file that may have other documents besides, which other
// takes. It is called before an object is read; nil takes none.
func DecodeFile(file string, data []byte, other Other) ([]Manifest, Errors) {
	d := yamlFile{name: file, docs: strict.NewYAML(data), other: other, first: map[catalog.Key]int{}}
	for d.docs.Next() {
		if d.mistaken == strict.MaxErrors {
			d.errors = append(d.errors, &Error{
				File: file, Line: d.docs.Line(), Column: 1,
				What: fmt.Sprintf("reading this file stops here, after %d objects with mistakes", strict.MaxErrors),
				Fix:  "mend those above; what stands below is not read until then",
			})
			break
		}
		d.document()
	}
	if mistake := d.docs.Mistake; mistake != nil {
		mistake.File = file
		mistake.Fix += "; no object of this file is taken until then"
		return nil, Errors{mistake}
	}
	return d.result(), d.errors
}

// yamlFile collects what the documents of a file hold.
type yamlFile struct {
	name    string
	docs    *strict.YAML
	other   Other
	objects []Manifest
	first   map[catalog.Key]int // the line of each key's first object
	doubled map[catalog.Key]bool
	errors  Errors
	// mistaken counts the documents with mistakes.
	mistaken int
}

func (f *yamlFile) document() {
	r := &strict.Report{File: f.name}
	root, ok := f.docs.Root(r)
	if ok && root.Kind == strict.Null {
		return // nothing between two "---", or comments only
	}
	if ok && f.other != nil && f.other(&root) {
		return
	}
	var obj catalog.Object
	if ok {
		obj = decodeObject(&root, r, true)
	}
	if len(r.Errors) > 0 {
		f.mistaken++
	}
	errs := r.Close()
	if len(f.errors) >= strict.MaxErrors && len(errs) > 1 {
		errs = errs[:1] // each object is named, and no answer is flooded
	}
	f.errors = append(f.errors, errs...)
	if r.Key == (catalog.Key{}) {
		return
	}
	if line, there := f.first[r.Key]; there {
		f.double(r.Key, root.At, line)
		return
	}
	f.first[r.Key] = int(root.At.Line)
	if obj != nil {
		f.objects = append(f.objects, Manifest{obj, revisionOf(&root)})
	}
}

// double refuses an object that is there twice: which of the two is meant, nobody
// can know.
func (f *yamlFile) double(key catalog.Key, at strict.Position, first int) {
	if f.doubled == nil {
		f.doubled = map[catalog.Key]bool{}
	}
	f.doubled[key] = true
	f.errors = append(f.errors, &Error{
		File: f.name, Line: int(at.Line), Column: int(at.Column), Key: key,
		What: fmt.Sprintf("%s is there twice, first in line %d; neither is taken", key, first),
		Fix:  "keep one of them",
	})
}

// revisionOf is the metadata.revision of an object that was decoded without a mistake.
func revisionOf(root *strict.Node) string {
	if revision := root.Field("metadata").Field("revision"); revision != nil {
		return revision.Text
	}
	return ""
}

func (f *yamlFile) result() []Manifest {
	if f.doubled == nil {
		return f.objects
	}
	var single []Manifest
	for _, obj := range f.objects {
		if !f.doubled[obj.Key()] {
			single = append(single, obj)
		}
	}
	return single
}
