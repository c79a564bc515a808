package show

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// Whoever registers chooses the ID of its instance. No such text commands the terminal of whoever
// lists it, or looks like another row.
func TestNothingThatClientsChooseCommandsATerminal(t *testing.T) {
	const hostile = "\x1b]52;c;cm0=\a\n-\x1b[2J"
	var b strings.Builder
	orders := &v1alpha1.App{Namespace: "shop", Id: "orders"}
	app := &v1alpha1.AppState{App: orders, Instances: []*v1alpha1.InstanceState{{Source: "stream", Id: hostile, Address: "10.0.0.1:50002"}}}
	if err := Apps(&b, []*v1alpha1.AppState{app}, 0, true); err != nil {
		t.Fatal(err)
	}
	if err := Sidecars(&b, []*v1alpha1.SidecarState{{App: orders, Zone: hostile, Version: hostile}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := Explain(&b, "shop/checkout", "shop/orders", &v1alpha1.Decision{Outcome: "denied", Reason: "\x1b[2J"}); err != nil {
		t.Fatal(err)
	}
	event := &v1alpha1.Event{Level: "INFO", Message: "a\x1b[2J", Fields: []*v1alpha1.EventField{{Name: "instance", Value: hostile}}}
	if err := EventLine(&b, event, time.UTC); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\a") || strings.Contains(b.String(), "\n-") {
		t.Errorf("got %q", b.String())
	}
	if !strings.Contains(b.String(), `instance="\x1b]52`) {
		t.Errorf("an event's value is not quoted: %s", b.String())
	}
}

// A name with control characters begins no line of its own, and a text of several lines stays one.
func TestNamesFromOutsideStayInTheirLine(t *testing.T) {
	for name, want := range map[string]string{
		"a.yaml": "a.yaml", "a\nHEALTHY.yaml": `a\nHEALTHY.yaml`, "a\r\x1b[2J.yaml": `a\r\x1b[2J.yaml`, "a\u2028b.yaml": `a\u2028b.yaml`,
	} {
		refused := &v1alpha1.RefusedObject{Source: name, Error: name + ": 2 mistakes\nsecond"}
		s := &v1alpha1.StatusResponse{Refused: []*v1alpha1.RefusedObject{refused}, Sources: []*v1alpha1.SourceStatus{{Name: "consul", Ready: true, Refused: []*v1alpha1.RefusedObject{refused}}}}
		var b strings.Builder
		if err := Status(&b, s, true, time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"  object: refused: " + want + ": 2 mistakes\n    second\n", "source consul: refused " + want + ": " + want + ": 2 mistakes\n"} {
			if !strings.Contains(b.String(), line) {
				t.Errorf("%q: no line %q in\n%s", name, line, b.String())
			}
		}
	}
}
