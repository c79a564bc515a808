// Package files reads objects from what a user names with -f: files, directories and
// standard input.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// maxBytes bounds one file.
const maxBytes = 64 << 20

// Set has the objects of files.
type Set struct {
	Objects   []catalog.Object
	Revisions []string // the metadata.revision of each; empty where there is none
	Files     int
	Notes     []string // on documents of other standards, which objects were derived from
}

// Read reads every name: a file, a directory with everything in it and below that
// ends in .yaml, .yml or .json, or "-" for standard input. The error has a line for
// each mistake of each file.
//
// Documents of SMI and MCS become objects; clusters is nil where no service can be asked.
func Read(names []string, stdin io.Reader, clusters Clusters) (*Set, error) {
	r := reader{first: map[catalog.Key]catalog.Source{}}
	for _, name := range names {
		if name == "-" {
			r.read("stdin", stdin)
			continue
		}
		r.walk(name)
	}
	if r.set.Files == 0 && len(r.errors) == 0 {
		r.errors = append(r.errors, fmt.Errorf("no .yaml, .yml or .json file in %s", strings.Join(names, ", ")))
	}
	r.derive(clusters)
	return &r.set, errors.Join(r.errors...)
}

type reader struct {
	set    Set
	first  map[catalog.Key]catalog.Source
	errors []error

	documents []*smimcs.Document
}

func (r *reader) walk(root string) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || path != root && !isObjectFile(path):
			return nil
		}
		r.open(path)
		return nil
	})
	if err != nil {
		r.errors = append(r.errors, unread(err))
	}
}

// unread says what to do about a file that can't be read.
func unread(err error) error {
	return fmt.Errorf("%w; name what is there by -f, and let this user read it", err)
}

func isObjectFile(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}

func (r *reader) open(path string) {
	file, err := os.Open(path)
	if err != nil {
		r.errors = append(r.errors, unread(err))
		return
	}
	defer file.Close()
	r.read(path, file)
}

// read reads one file. JSON is YAML too.
func (r *reader) read(name string, from io.Reader) {
	r.set.Files++
	text, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("is over %d bytes long", maxBytes)
	}
	if err != nil {
		r.errors = append(r.errors, fmt.Errorf("%s: %w", name, err))
		return
	}
	manifests, mistakes := api.DecodeFile(name, text, func(root *strict.Node) bool { return r.document(name, root) })
	if err := mistakes.Err(); err != nil {
		r.errors = append(r.errors, err)
	}
	for _, m := range manifests {
		r.add(m)
	}
}

// add takes an object in, unless another file has it too.
func (r *reader) add(m api.Manifest) {
	key, source := m.Key(), m.Origin()
	if first, doubled := r.first[key]; doubled {
		r.errors = append(r.errors, &api.Error{
			File: source.File, Line: source.Line, Column: 1, Key: key,
			What: fmt.Sprintf("%s is there twice, first in %s:%d", key, first.File, first.Line), Fix: "keep one of them",
		})
		return
	}
	r.first[key] = source
	r.set.Objects = append(r.set.Objects, m.Object)
	r.set.Revisions = append(r.set.Revisions, m.Revision)
}
