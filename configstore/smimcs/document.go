// Package smimcs reads objects of two other standards, and derives objects of Isthmus from them:
// TrafficTarget and TrafficSplit of SMI (the Service Mesh Interface), ServiceExport and
// ServiceImport of MCS (the Multi-Cluster Services API of Kubernetes).
//
// It does no I/O and knows no address. [Decode] makes a [Document] of a YAML or JSON object, and a
// [Set] derives at most one AppEndpoints and one AppExport for each app from the documents about
// it. docs/how-to/smi.md says what each field means.
//
// A document that can't be taken as it is meant is refused: ignoring a field must never let
// more callers in. Of a refused TrafficTarget the callers still have a selection, without that
// callee, so that they don't fall back to the cluster's default.
package smimcs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// ID names a document. File is empty for one from an API server.
type ID struct{ Kind, Namespace, Name, File string }

// String is "Kind namespace/name".
func (id ID) String() string { return id.Kind + " " + id.Namespace + "/" + id.Name }

// Compare orders documents by kind, namespace, name and file.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Kind, o.Kind), cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name), cmp.Compare(id.File, o.File))
}

// Document is an object of another standard, as far as it means something here. It is immutable.
type Document struct {
	ID
	Line  int      // of its first line, from 1; 0 for one from an API server
	Err   error    // why it is not taken, or nil
	Notes []string // about fields that are ignored and change nothing that was asked for

	callers  []catalog.App // of a TrafficTarget and a ServiceImport
	callee   catalog.App   // zero for a document without a meaning
	backends []backend     // of a TrafficSplit
	usable   bool          // of a refused one: an earlier version stands
}

// backend is one way of a TrafficSplit.
type backend struct {
	cluster string // catalog.LocalCluster, or the part of the name that must be a cluster
	service string
	weight  uint32
}

// String is the document and its place.
func (d *Document) String() string {
	if d.File == "" {
		return d.ID.String()
	}
	return d.ID.String() + " (" + d.File + ":" + strconv.Itoa(d.Line) + ")"
}

// Doubled is a document that a file has twice: which of the two is meant, nobody can know.
func Doubled(first, second *Document) *Document {
	both := *second
	both.callers = append(slices.Clone(first.callers), second.callers...)
	both.usable = false
	both.Err = &strict.Error{File: both.File, Line: both.Line, Column: 1,
		What: fmt.Sprintf("%s is there twice, first in line %d; neither is taken", both.ID, first.Line), Fix: "keep one of them"}
	return &both
}

// Resource is a sort of documents, as an API server calls it.
type Resource struct {
	Standard string // "smi" or "mcs"
	Group    string
	Plural   string
	Kind     string
	Versions []string // that are understood, the newest first
}

// CheckStandards checks that names are values of Resource.Standard. path is where they stand in a
// configuration.
func CheckStandards(path string, names []string) error {
	for i, name := range names {
		if name != "smi" && name != "mcs" {
			return &strict.Error{Path: fmt.Sprintf("%s[%d]", path, i), What: fmt.Sprintf("%q is not known", strict.Shorten(name)), Fix: "write smi or mcs"}
		}
	}
	return nil
}

// Resources are the documents that something is derived from. Callers must not change them.
var Resources = []Resource{
	{"smi", "access.smi-spec.io", "traffictargets", kindTarget, []string{"v1alpha3", "v1alpha2", "v1alpha1"}},
	{"smi", "split.smi-spec.io", "trafficsplits", kindSplit, []string{"v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"}},
	{"mcs", "multicluster.x-k8s.io", "serviceexports", kindExport, []string{"v1beta1", "v1alpha1"}},
	{"mcs", "multicluster.x-k8s.io", "serviceimports", kindImport, []string{"v1beta1", "v1alpha1"}},
}

const (
	kindTarget = "TrafficTarget"
	kindSplit  = "TrafficSplit"
	kindExport = "ServiceExport"
	kindImport = "ServiceImport"
)

// String is the resource as RBAC and kubectl call it.
func (r Resource) String() string { return r.Plural + "." + r.Group }

// Decode reads an object that package api does not know. It returns nil if the object is of no
// standard that is read here.
func Decode(file string, root *strict.Node) *Document {
	apiVersion, kind := root.Field("apiVersion"), root.Field("kind")
	if apiVersion == nil || kind == nil {
		return nil
	}
	group, version, _ := strings.Cut(apiVersion.Text, "/")
	if !strings.HasSuffix(group, ".smi-spec.io") && group != "multicluster.x-k8s.io" {
		return nil
	}
	d := &decoder{root: root, report: &strict.Report{File: file}, version: version}
	d.doc = &Document{ID: ID{Kind: kind.Text, File: file}, Line: int(root.At.Line)}
	d.head()
	known := slices.IndexFunc(Resources, func(r Resource) bool { return r.Group == group && r.Kind == kind.Text })
	switch {
	case known < 0:
		d.note("%s has no equivalent and is ignored", d.doc.ID)
	case !slices.Contains(Resources[known].Versions, version):
		d.refuse("apiVersion", fmt.Sprintf("%q is not read", strict.Shorten(apiVersion.Text)), "write one of "+strings.Join(Resources[known].Versions, ", "))
	default:
		map[string]func(){kindTarget: d.target, kindSplit: d.split, kindExport: d.export, kindImport: d.imported}[kind.Text]()
	}
	if known >= 0 {
		d.doc.Err = d.report.Close().Err()
	}
	d.doc.usable = d.doc.Err == nil
	return d.doc
}

// DecodeJSON is [Decode] of an object from an API server. where names it in errors.
func DecodeJSON(where string, data []byte) *Document {
	r := &strict.Report{File: where}
	root, ok := strict.ParseJSON(data, r)
	if !ok {
		return nil
	}
	d := Decode("", root)
	if d == nil {
		return nil
	}
	d.Line = 0
	if errs, ok := d.Err.(strict.Errors); ok {
		for _, e := range errs {
			e.File, e.Line, e.Column = where, 0, 0 // of the server's own text, which nobody sees
		}
	}
	return d
}

// decoder reads one document, and goes on after a mistake.
type decoder struct {
	root    *strict.Node
	report  *strict.Report
	version string
	doc     *Document
}

func (d *decoder) refuse(path, what, fix string) {
	d.report.Add(d.root.Find(path).At, path, what, fix)
}

func (d *decoder) note(format string, args ...any) {
	d.doc.Notes = append(d.doc.Notes, fmt.Sprintf(format, args...))
}

// head reads the name. The rest of the metadata is Kubernetes's own.
func (d *decoder) head() {
	for _, f := range []struct {
		name string
		into *string
	}{{"namespace", &d.doc.Namespace}, {"name", &d.doc.Name}} {
		n := d.root.Field("metadata").Field(f.name)
		if n == nil || n.Kind != strict.String || n.Text == "" {
			d.refuse("metadata."+f.name, "is missing", "give it a text")
			continue
		}
		*f.into = n.Text
	}
}

// annotation is the value of isthmus.dev/<name>, or empty.
func (d *decoder) annotation(name string) string {
	if n := d.root.Field("metadata").Field("annotations").Field("isthmus.dev/" + name); n != nil {
		return n.Text
	}
	return ""
}

// app is an app whose name DNS and SNI can carry, as objects of Isthmus must have.
func (d *decoder) app(path, namespace, id string) (catalog.App, bool) {
	app := catalog.App{Namespace: namespace, ID: id}
	if err := app.CheckHost(); err != nil {
		d.refuse(path, err.Error(), "name an app that other clusters can call")
		return catalog.App{}, false
	}
	return app, true
}

// fill reads all fields. Every document has these besides its own.
func (d *decoder) fill(into any) { strict.Fill(d.root, into, d.report) }

type header struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   any    `yaml:"metadata"`
	Status     any    `yaml:"status"`
}
