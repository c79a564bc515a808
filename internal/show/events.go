package show

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// EventLine writes an event for people, with its time in a zone. The cluster is the same in all.
func EventLine(w io.Writer, m *v1alpha1.Event, zone *time.Location) error {
	var b strings.Builder
	Say(&b, "%s  %-5s  %s", time.UnixMilli(m.GetLastUnixMs()).In(zone).Format(time.DateTime), m.GetLevel(), catalog.Printable(m.GetMessage()))
	if m.GetCount() > 1 {
		Say(&b, " (%d times)", m.GetCount())
	}
	for _, f := range m.GetFields() {
		if f.GetName() == "cluster" {
			continue
		}
		value := f.GetValue()
		if value == "" || strings.ContainsAny(value, " \"=") || catalog.Printable(value) != value {
			value = strconv.Quote(value)
		}
		Say(&b, " %s=%s", f.GetName(), value)
	}
	paragraph(w, "", "  ", b.String())
	return nil
}
