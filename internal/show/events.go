package show

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Event is something that happened, as programs read it.
type Event struct {
	Number  uint64            `json:"number" yaml:"number"`
	First   string            `json:"first" yaml:"first"` // RFC 3339
	Last    string            `json:"last" yaml:"last"`
	Count   uint32            `json:"count" yaml:"count"` // how often, from first to last
	Level   string            `json:"level" yaml:"level"`
	Message string            `json:"message" yaml:"message"`
	Fields  map[string]string `json:"fields" yaml:"fields"`
}

// EventOf reads an event.
func EventOf(m *v1alpha1.Event) Event {
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00") }
	e := Event{
		Number: m.GetNumber(), First: at(m.GetFirstUnixMs()), Last: at(m.GetLastUnixMs()), Count: m.GetCount(),
		Level: strings.ToLower(m.GetLevel()), Message: m.GetMessage(), Fields: map[string]string{},
	}
	for _, f := range m.GetFields() {
		e.Fields[f.GetName()] = f.GetValue()
	}
	return e
}

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
