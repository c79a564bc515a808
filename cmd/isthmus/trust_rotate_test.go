package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/rotation"
)

// Whoever says yes hours after the question agrees to what they were asked, and to nothing else.
func TestAYesIsForTheStepThatWasAsked(t *testing.T) {
	asked := &rotation.Plan{Phase: rotation.Remove, Announce: "new"}
	for what, c := range map[string]struct {
		answer string
		now    *rotation.Plan
		still  bool
	}{
		"it is as it was":                  {"yes\n", asked, true},
		"a sidecar lacks the new root":     {"yes\n", &rotation.Plan{Phase: rotation.Trust}, false},
		"somebody else rotates to another": {"yes\n", &rotation.Plan{Phase: rotation.Remove, Announce: "another"}, false},
		"no":                               {"no\n", asked, false},
	} {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetIn(strings.NewReader(c.answer))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if still, err := agreed(cmd, asked, "drop the old root", func() (*rotation.Plan, error) { return c.now, nil }); still != c.still || (err == nil) != (c.answer == "yes\n") {
			t.Errorf("%s: %t, %v", what, still, err)
		}
	}
}
