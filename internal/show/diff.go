package show

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// nowhere stands in a diff for what is not there, as other tools write it.
const nowhere = "/dev/null"

// Side is one side of a diff: an object, or none.
type Side struct {
	Object catalog.Object // nil for none
	Label  string         // behind its name, such as "revision 12"
}

func (s Side) name(key catalog.Key) string {
	if s.Object == nil && s.Label == "" {
		return nowhere
	}
	if s.Label == "" {
		return key.String()
	}
	return key.String() + ", " + s.Label
}

func (s Side) text() []byte {
	if s.Object == nil {
		return nil
	}
	return api.EncodeYAML(s.Object)
}

// Diff is the unified diff of an object's YAML; empty where nothing changes.
func Diff(key catalog.Key, before, after Side) string {
	text := diff.Diff(before.name(key), before.text(), after.name(key), after.text())
	_, text, _ = bytes.Cut(text, []byte("\n")) // "diff NAME NAME"
	return string(text)
}

// AddDiffs adds to an answer how each object differs from the stored one. Objects are the new ones,
// nil for a deleted one.
func AddDiffs(m *v1alpha1.ApplyResponse, objects []catalog.Object) error {
	if len(objects) != len(m.GetResults()) {
		return fmt.Errorf("%d objects were asked for, and the answer has %d; is the service of another version than this isthmus?", len(objects), len(m.GetResults()))
	}
	for i, r := range m.GetResults() {
		key, before := wire.KeyOf(r.GetKey()), Side{}
		switch {
		case r.GetUnusable() != "":
			before.Label = "which can't be used: " + strings.ReplaceAll(r.GetUnusable(), "\n", "; ")
		case len(r.GetHeld()) > 0:
			object, err := decoded(key, r.GetHeld())
			if err != nil {
				return err
			}
			before = Side{object, "revision " + r.GetRevision()}
		case r.GetResult() != "created":
			return fmt.Errorf("the answer does not say what %s was; is the service of another version than this isthmus?", key)
		}
		after := Side{objects[i], "changed"}
		switch {
		case objects[i] == nil:
			after = Side{}
		case r.GetResult() == "created":
			after.Label = "created"
		}
		r.Diff = Diff(key, before, after)
	}
	return nil
}

// Diffs writes what changes in each object, in colours if that is said, with an empty
// line behind it if anything does.
func Diffs(w io.Writer, a *v1alpha1.ApplyResponse, colours bool) error {
	end := ""
	for _, r := range a.GetResults() {
		if err := writeDiff(w, r.GetDiff(), colours); err != nil {
			return err
		}
		if r.GetDiff() != "" {
			end = "\n"
		}
	}
	_, err := io.WriteString(w, end)
	return err
}

// Colours of the lines of a diff, by how they begin.
var diffColours = []struct{ begins, colour string }{
	{"--- ", "\x1b[1m"}, {"+++ ", "\x1b[1m"}, {"@@", "\x1b[36m"}, {"-", "\x1b[31m"}, {"+", "\x1b[32m"},
}

func writeDiff(w io.Writer, text string, colours bool) error {
	if !colours {
		_, err := io.WriteString(w, text)
		return err
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for _, c := range diffColours {
			if strings.HasPrefix(line, c.begins) {
				line = c.colour + line + "\x1b[0m"
				break
			}
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// Colours tells whether the output is for a person that sees colours and has not turned them off.
func Colours(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
