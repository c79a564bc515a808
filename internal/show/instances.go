package show

import (
	"io"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// WarnOfInstances writes a line for each AppInstance, of those among others, with an address that
// another has, too. A service warns by itself of an applied object, since it knows the others.
func WarnOfInstances(w io.Writer, all []catalog.Object) {
	var placed []*catalog.AppInstance
	for _, object := range all {
		if i, ok := object.(*catalog.AppInstance); ok {
			placed = append(placed, i)
		}
	}
	for _, d := range catalog.DuplicateAddresses(placed) {
		Say(w, "warning: %s:%d: %s\n", d.Instance.Source.File, d.Instance.Source.Line, d)
	}
}
