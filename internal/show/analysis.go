package show

import (
	"fmt"
	"io"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Analysis is what is most likely not meant in objects, as programs read it.
type Analysis struct {
	Objects  uint32    `json:"objects" yaml:"objects"` // that were looked at
	Warnings int       `json:"warnings" yaml:"warnings"`
	Notes    int       `json:"notes" yaml:"notes"`
	Findings []Finding `json:"findings" yaml:"findings"`
	LeftOut  uint32    `json:"leftOut" yaml:"leftOut"` // findings that are not listed
}

// Finding is one thing that is most likely not meant.
type Finding struct {
	Check     string `json:"check" yaml:"check"`
	Level     string `json:"level" yaml:"level"` // warning or note
	Source    string `json:"source" yaml:"source"`
	Kind      string `json:"kind" yaml:"kind"`
	Namespace string `json:"namespace" yaml:"namespace"`
	Name      string `json:"name" yaml:"name"`
	Path      string `json:"path" yaml:"path"`
	What      string `json:"what" yaml:"what"`
	Fix       string `json:"fix" yaml:"fix"`
}

// AnalysisOf reads an answer. The objects are those that were sent, which know their files.
func AnalysisOf(m *v1alpha1.AnalyzeResponse, sent []catalog.Object) Analysis {
	a := Analysis{Objects: m.GetObjects(), Findings: []Finding{}, LeftOut: m.GetLeftOut()}
	byKey := map[catalog.Key]catalog.Object{}
	for _, object := range sent {
		byKey[object.Key()] = object
	}
	for _, f := range m.GetFindings() {
		k := f.GetKey()
		next := Finding{f.GetCheck(), f.GetLevel(), f.GetSource(), k.GetKind(), k.GetNamespace(), k.GetName(), f.GetPath(), f.GetWhat(), f.GetFix()}
		if object := byKey[catalog.Key{Kind: catalog.Kind(next.Kind), Namespace: next.Namespace, Name: next.Name}]; object != nil {
			next.Source = placeOf(object, next.Path)
		}
		if next.Level == "warning" {
			a.Warnings++
		} else {
			a.Notes++
		}
		a.Findings = append(a.Findings, next)
	}
	return a
}

// placeOf is "file:line" of a part of an object, or what the part is derived from.
func placeOf(object catalog.Object, path string) string {
	var i int
	if s, ok := object.(*catalog.AppEndpoints); ok {
		if _, err := fmt.Sscanf(path, "spec.endpoints[%d]", &i); err == nil && i < len(s.Endpoints) {
			return s.OriginOf(i).String()
		}
	}
	return object.Origin().String()
}

// Write writes a line for each finding, and one that counts them.
func (a *Analysis) Write(w io.Writer) {
	for _, f := range a.Findings {
		key := catalog.Key{Kind: catalog.Kind(f.Kind), Namespace: f.Namespace, Name: f.Name}
		paragraph(w, "", "  ", fmt.Sprintf("%s%s: %s: %s: %s; %s [%s]", before(f.Source, ": "), f.Level, key, f.Path, f.What, f.Fix, f.Check))
	}
	if a.LeftOut > 0 {
		Say(w, "and %d more\n", a.LeftOut)
	}
	if len(a.Findings) == 0 {
		Say(w, "%s: nothing found\n", Count(int(a.Objects), "object"))
		return
	}
	Say(w, "%s: %s, %s\n", Count(int(a.Objects), "object"), Count(a.Warnings, "warning"), Count(a.Notes, "note"))
}

// before is a text with something after it, or nothing.
func before(s, after string) string {
	if s == "" {
		return ""
	}
	return s + after
}
