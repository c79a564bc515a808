package api

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/strict"
)

// Manifest is an object as a user wrote it, with the revision of the object that it was
// made from: its metadata.revision, empty where there is none.
type Manifest struct {
	catalog.Object
	Revision string
}

// DecodeYAML reads the objects of a YAML file, of which each document is one. file
// names it in errors and in the objects' Source. It leaves out metadata.revision, which
// says nothing in a file that is itself the store.
//
// Good objects are returned beside the mistakes of bad ones. If the file is not YAML
// at all, or is cut off, no object is returned, and the error has no key.
func DecodeYAML(file string, data []byte) ([]catalog.Object, Errors) {
	manifests, errs := DecodeManifests(file, data)
	return ObjectsOf(manifests), errs
}

// ObjectsOf are the objects without their revisions.
func ObjectsOf(manifests []Manifest) []catalog.Object {
	if manifests == nil {
		return nil
	}
	objects := make([]catalog.Object, len(manifests))
	for i, m := range manifests {
		objects[i] = m.Object
	}
	return objects
}

// DecodeManifests is [DecodeYAML] of a file that is to be applied: with the revisions.
func DecodeManifests(file string, data []byte) ([]Manifest, Errors) {
	return DecodeFile(file, data, nil)
}

// Other takes a document that is no object of Isthmus, and tells whether it knows what it is.
type Other func(root *strict.Node) bool

// DecodeFile is [DecodeManifests] of a file that may have other documents besides, which other
// takes. It is called before an object is read; nil takes none.
func DecodeFile(file string, data []byte, other Other) ([]Manifest, Errors) {
	docs, mistake := strict.ParseYAML(data)
	if mistake != nil {
		mistake.File = file
		mistake.Fix += "; no object of this file is taken until then"
		return nil, Errors{mistake}
	}
	d := yamlFile{name: file, docs: docs, other: other, first: map[catalog.Key]int{}}
	for i := range docs.Len() {
		if d.mistaken == strict.MaxErrors {
			d.errors = append(d.errors, &Error{
				File: file, Line: docs.Line(i), Column: 1,
				What: fmt.Sprintf("reading this file stops here, after %d objects with mistakes", strict.MaxErrors),
				Fix:  "mend those above; what stands below is not read until then",
			})
			break
		}
		d.document(i)
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

func (f *yamlFile) document(i int) {
	r := &strict.Report{File: f.name}
	root, ok := f.docs.Root(i, r)
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
	f.errors = append(f.errors, r.Close()...)
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
