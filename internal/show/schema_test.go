package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// jsonPage documents what is printed for programs. All below its mark is made by this test.
const (
	jsonPage = "../../docs/reference/json.md"
	jsonMark = "<!-- made by go test ./internal/show -update -->\n"
)

// printedKinds are what is printed for programs, by the commands that print it. A list is of such messages.
var printedKinds = []struct {
	kind, command string
	message       proto.Message
}{
	{"AppList", "isthmus apps", &v1alpha1.AppState{}},
	{"SidecarList", "isthmus sidecars", &v1alpha1.SidecarState{}},
	{"EventList", "isthmus events", &v1alpha1.Event{}},
	{"CallList", "isthmus calls, isthmus guard check, isthmus explain --to", &v1alpha1.Call{}},
	{"Traffic", "isthmus top", &v1alpha1.TrafficResponse{}},
	{"Tap", "isthmus tap", &v1alpha1.TapResponse{}},
	{"Graph", "isthmus graph", &v1alpha1.GraphResponse{}},
	{"Diagnosis", "isthmus check", &v1alpha1.CheckResponse{}},
	{"Event", "isthmus events --watch", &v1alpha1.Event{}},
	{"Decision", "isthmus resolve, isthmus explain", &v1alpha1.Decision{}},
	{"Change", "isthmus apply, isthmus delete", &v1alpha1.ApplyResponse{}},
	{"Analysis", "isthmus analyze", &v1alpha1.AnalyzeResponse{}},
	{"VersionList", "isthmus history", &v1alpha1.PastObject{}},
	{"CertificateList", "isthmus trust", &v1alpha1.TrustStatus{}},
	{"Invitation", "isthmus link invite", &v1alpha1.InviteResponse{}},
	{"Link", "isthmus link accept, isthmus link invite --wait", &v1alpha1.LinkState{}},
	{"Links", "isthmus link list", &v1alpha1.InvitationsResponse{}},
	{"ContextList", "isthmus context list", &v1alpha1.Context{}},
	{"StoreCheck", "isthmus store check", &v1alpha1.StoreCheck{}},
	{"StoreCopy", "isthmus store copy", &v1alpha1.StoreCopy{}},
	{"StoreIndex", "isthmus store index", &v1alpha1.StoreIndex{}},
	{"ProgramVersion", "isthmus version", &v1alpha1.ProgramVersion{}},
	{"Status", "isthmus status", &v1alpha1.StatusResponse{}},
}

// schema collects the fields of what is printed.
type schema struct {
	comments map[string]string // by Message.field
	rows     [][3]string       // path, type, meaning
}

// of adds the fields of a message, as [printer] prints them.
func (s *schema) of(m protoreflect.MessageDescriptor, path string) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name, shape := shapeOf(f)
		at, what := path+name, "number"
		switch {
		case shape == inlined:
			s.of(f.Message(), path)
			continue
		case shape == moment:
			what = "time"
		case shape == entries:
			what = "map"
		case shape == encoded, shape == plain && f.Message() != nil:
			what = "object"
		case shape == named, f.Kind() == protoreflect.StringKind:
			what = "string"
		case f.Kind() == protoreflect.BoolKind:
			what = "boolean"
		}
		comment := strings.TrimSuffix(s.comments[string(m.Name())+"."+string(f.Name())], "; by the asker")
		if comment == "by the asker" {
			comment = ""
		}
		if f.IsList() && shape != entries {
			at, what = at+"[]", what+"s"
		}
		s.rows = append(s.rows, [3]string{strings.TrimSuffix(at, "[]"), what, comment})
		if shape == plain && f.Message() != nil {
			s.of(f.Message(), at+".")
		}
	}
}

// kind adds the fields of one of printedKinds.
func (s *schema) kind(kind string, m proto.Message) {
	path := ""
	if strings.HasSuffix(kind, "List") {
		s.rows, path = append(s.rows, [3]string{"items", "objects", ""}), "items[]."
	}
	s.of(m.ProtoReflect().Descriptor(), path)
}

// table writes the fields as a tree: each below its object, indented, without the names of those above.
func (s *schema) table(w *bytes.Buffer, kind, command string) {
	fmt.Fprintf(w, "\n## %s\n\nPrinted by `%s`.\n\n```text\n", kind, strings.ReplaceAll(command, ", ", "` and `"))
	for _, r := range s.rows {
		depth, name := strings.Count(r[0], "."), r[0][strings.LastIndex(r[0], ".")+1:]
		line := fmt.Sprintf("%s%s %s", strings.Repeat("  ", depth), name, r[1])
		if r[2] != "" {
			line = fmt.Sprintf("%-36s %s", line, r[2])
		}
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w, "```")
}

var (
	protoMessage = regexp.MustCompile(`^message (\w+) {`)
	protoField   = regexp.MustCompile(`^  [\w ]+ (\w+) = \d+(?: \[.*\])?;(?: *// (.*))?`)
)

// fieldComments are the comments beside the fields of messages.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	for _, name := range []string{"services", "answers"} {
		text, err := os.ReadFile("../../api/isthmus/v1alpha1/" + name + ".proto")
		if err != nil {
			t.Fatal(err)
		}
		message := ""
		for line := range strings.Lines(string(text)) {
			if m := protoMessage.FindStringSubmatch(line); m != nil {
				message = m[1]
			}
			if m := protoField.FindStringSubmatch(line); m != nil {
				comments[message+"."+m[1]] = strings.TrimSpace(m[2])
			}
		}
	}
	return comments
}

// TestTheJSONPageHasEveryField holds docs/reference/json.md to the messages that are printed.
func TestTheJSONPageHasEveryField(t *testing.T) {
	comments := fieldComments(t)
	var made bytes.Buffer
	for _, p := range printedKinds {
		s := &schema{comments: comments}
		s.kind(p.kind, p.message)
		s.table(&made, p.kind, p.command)
	}
	text, err := os.ReadFile(jsonPage)
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(string(text), jsonMark)
	if *update {
		if err := os.WriteFile(jsonPage, []byte(before+jsonMark+made.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if after != made.String() {
		t.Error("docs/reference/json.md is not what is printed: run go test ./internal/show -update")
	}
}

// TestWhatIsPrintedIsWhatThePageSays compares what is printed of messages, empty and full ones, with the page.
func TestWhatIsPrintedIsWhatThePageSays(t *testing.T) {
	for _, p := range printedKinds {
		messages := []proto.Message{p.message, fillMessage(proto.Clone(p.message))}
		if p.kind == "Status" {
			messages = append(messages, Judged(largeStatus(), noon))
		}
		s := &schema{}
		s.kind(p.kind, p.message)
		types := map[string]string{"apiVersion": "string", "kind": "string"}
		for _, r := range s.rows {
			types[r[0]] = r[1]
		}
		for _, m := range messages {
			var out, asYAML bytes.Buffer
			write := func(w io.Writer, f Format) error { return Print(w, f, p.kind, m) }
			if strings.HasSuffix(p.kind, "List") {
				write = func(w io.Writer, f Format) error { return PrintList(w, f, p.kind, []proto.Message{m}) }
			}
			var got, again map[string]any
			if err := errors.Join(write(&out, JSON), write(&asYAML, YAML), json.Unmarshal(out.Bytes(), &got)); err != nil {
				t.Fatalf("%s: %v\n%s", p.kind, err, out.String())
			}
			compare(t, types, "", got)
			if got["apiVersion"] != catalog.Version || got["kind"] != p.kind {
				t.Errorf("version %v, kind %v", got["apiVersion"], got["kind"])
			}
			if err := yaml.Unmarshal(asYAML.Bytes(), &again); err != nil || !reflect.DeepEqual(numbered(again), numbered(got)) {
				t.Errorf("%s: the YAML is another (%v):\n%s", p.kind, err, asYAML.String())
			}
		}
	}
}

// numbered is a value with all its numbers as texts.
func numbered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = numbered(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbered(v[i])
		}
	case float64:
		return fmt.Sprint(v)
	case int:
		return fmt.Sprint(float64(v))
	}
	return v
}

func compare(t *testing.T, types map[string]string, path string, value map[string]any) {
	t.Helper()
	for name, v := range value {
		at, is := path+name, ""
		switch v := v.(type) {
		case nil:
			if types[at] != "object" {
				t.Errorf("%s is null, and the page says %q", at, types[at])
			}
			continue
		case string:
			if is = "string"; types[at] == "time" {
				if _, err := time.Parse(time.RFC3339, v); v == "" || err == nil {
					is = "time"
				}
			}
		case bool:
			is = "boolean"
		case float64:
			is = "number"
		case map[string]any:
			if is = types[at]; is != "map" {
				is = "object"
				compare(t, types, at+".", v)
			}
		case []any:
			is = types[at]
			for _, one := range v {
				if object, ok := one.(map[string]any); ok {
					is = "objects"
					compare(t, types, at+"[].", object)
				}
			}
			if !strings.HasSuffix(is, "s") {
				is = "list"
			}
		}
		if types[at] != is {
			t.Errorf("%s is %s, and the page says %q", at, is, types[at])
		}
	}
}

// TestTextsStayTexts in YAML, also for readers of older versions, and nothing in JSON is unseen.
func TestTextsStayTexts(t *testing.T) {
	call := &v1alpha1.Call{Guard: "off", Rule: "12:30", Lacks: "true", Cluster: "a\x7f\u202e\u2028b \U0001f600 <x>"}
	var asYAML, asJSON bytes.Buffer
	if err := errors.Join(Print(&asYAML, YAML, "Call", call), Print(&asJSON, JSON, "Call", call)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nguard: \"off\"\n", "\nrule: \"12:30\"\n", "\nlacks: \"true\"\n", "\ndeclared: false\n", "\nletIn: 0\n"} {
		if !strings.Contains(asYAML.String(), want) {
			t.Errorf("no %q in\n%s", want, asYAML.String())
		}
	}
	if want := `"cluster": "a\u007f\u202e\u2028b ` + "\U0001f600" + ` <x>",`; !strings.Contains(asJSON.String(), want) {
		t.Errorf("no %s in\n%s", want, asJSON.String())
	}
	var back struct{ Cluster string }
	if err := json.Unmarshal(asJSON.Bytes(), &back); err != nil || back.Cluster != call.GetCluster() {
		t.Errorf("%q came back as %q, %v", call.GetCluster(), back.Cluster, err)
	}
}
