package show

import (
	"fmt"
	"io"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Analyzed completes an answer: it counts the findings, and names the places of objects that were
// sent, which know their files.
func Analyzed(a *v1alpha1.AnalyzeResponse, sent []catalog.Object) {
	byKey := map[catalog.Key]catalog.Object{}
	for _, object := range sent {
		byKey[object.Key()] = object
	}
	a.Warnings, a.Notes = 0, 0
	for _, f := range a.GetFindings() {
		if object := byKey[wire.KeyOf(f.GetKey())]; object != nil {
			f.Source = placeOf(object, f.GetPath())
		}
		if f.GetLevel() == "warning" {
			a.Warnings++
		} else {
			a.Notes++
		}
	}
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

// Analysis writes a line for each finding, and one that counts them.
func Analysis(w io.Writer, a *v1alpha1.AnalyzeResponse) {
	for _, f := range a.GetFindings() {
		paragraph(w, "", "  ", fmt.Sprintf("%s%s: %s: %s: %s; %s [%s]", before(f.GetSource(), ": "), f.GetLevel(), wire.KeyOf(f.GetKey()), f.GetPath(), f.GetWhat(), f.GetFix(), f.GetCheck()))
	}
	if a.GetLeftOut() > 0 {
		Say(w, "and %d more\n", a.GetLeftOut())
	}
	if len(a.GetFindings()) == 0 {
		Say(w, "%s: nothing found\n", Count(int(a.GetObjects()), "object"))
		return
	}
	Say(w, "%s: %s, %s\n", Count(int(a.GetObjects()), "object"), Count(int(a.GetWarnings()), "warning"), Count(int(a.GetNotes()), "note"))
}

// before is a text with something after it, or nothing.
func before(s, after string) string {
	if s == "" {
		return ""
	}
	return s + after
}
