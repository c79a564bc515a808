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
	app := App{App: "shop/orders", Instances: []Instance{{Source: "stream", ID: hostile, Address: "10.0.0.1:50002"}}}
	if err := Apps(&b, []App{app}, true); err != nil {
		t.Fatal(err)
	}
	if err := Sidecars(&b, []Sidecar{{App: "shop/orders", Zone: hostile, Version: hostile}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := Explain(&b, "shop/checkout", "shop/orders", Decision{Outcome: "denied", Reason: "\x1b[2J"}); err != nil {
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
