package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// jsonPage documents what is printed for programs. All below its mark is made by this test.
const (
	jsonPage = "../../docs/reference/json.md"
	jsonMark = "<!-- made by go test ./show -update -->\n"
)

// printedKinds are what is printed for programs, by the commands that print it.
var printedKinds = []struct {
	kind, command string
	value         any
}{
	{"AppList", "isthmus apps", List[App]{}},
	{"SidecarList", "isthmus sidecars", List[Sidecar]{}},
	{"EventList", "isthmus events", List[Event]{}},
	{"CallList", "isthmus calls, isthmus guard check, isthmus explain --to", List[Call]{}},
	{"Graph", "isthmus graph", Graph{}},
	{"Diagnosis", "isthmus check", Diagnosis{}},
	{"Event", "isthmus events --watch", Event{}},
	{"Decision", "isthmus resolve, isthmus explain", Decision{}},
	{"Change", "isthmus apply, isthmus delete", Applied{}},
	{"Analysis", "isthmus analyze", Analysis{}},
	{"VersionList", "isthmus history", List[Version]{}},
	{"CertificateList", "isthmus trust", List[Certificate]{}},
	{"Invitation", "isthmus link invite", Invitation{}},
	{"Link", "isthmus link accept, isthmus link invite --wait", Link{}},
	{"Links", "isthmus link list", Links{}},
	{"ContextList", "isthmus context list", List[Context]{}},
	{"StoreCheck", "isthmus store check", Checked{}},
	{"StoreCopy", "isthmus store copy", Copied{}},
	{"StoreIndex", "isthmus store index", StoreIndex{}},
	{"ProgramVersion", "isthmus version", Program{}},
}

// moments are the fields of structs that are times.
var moments = []string{"since", "first", "last", "notBefore", "notAfter", "time", "expires"}

// schema collects the fields of what is printed.
type schema struct {
	comments map[string]string // by Type.Field
	rows     [][3]string       // path, type, meaning
}

func (s *schema) of(t reflect.Type, path string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			s.of(f.Type, path)
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		at := path + name
		s.rows = append(s.rows, [3]string{at, kindOf(f.Type, name), s.comments[t.Name()+"."+f.Name]})
		elem := f.Type
		if elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Struct {
			elem, at = elem.Elem(), at+"[]"
		}
		if elem.Kind() == reflect.Struct {
			s.of(elem, at+".")
		}
	}
}

func kindOf(t reflect.Type, name string) string {
	switch {
	case t.String() == "json.RawMessage", t.Kind() == reflect.Struct:
		return "object"
	case slices.Contains(moments, name):
		return "time"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "objects"
	case t.Kind() == reflect.Slice:
		return kindOf(t.Elem(), "") + "s"
	case t.Kind() == reflect.Map:
		return "map"
	case t.Kind() == reflect.String, t.Kind() == reflect.Bool:
		return map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean"}[t.Kind()]
	case t.Kind() == reflect.Interface:
		return "object"
	}
	return "number"
}

// ofMessage is of for a message, as [Plain] prints it.
func (s *schema) ofMessage(m protoreflect.MessageDescriptor, path string) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name, moment := strings.CutSuffix(f.JSONName(), momentSuffix)
		at, what := path+name, "number"
		switch {
		case moment:
			what = "time"
		case f.Message() != nil:
			what = "object"
		case f.Kind() == protoreflect.StringKind:
			what = "string"
		case f.Kind() == protoreflect.BoolKind:
			what = "boolean"
		}
		if f.IsList() {
			at, what = at+"[]", what+"s"
		}
		s.rows = append(s.rows, [3]string{strings.TrimSuffix(at, "[]"), what, s.comments[string(m.Name())+"."+string(f.Name())]})
		if f.Message() != nil {
			s.ofMessage(f.Message(), at+".")
		}
	}
}

func (s *schema) table(w *bytes.Buffer, kind, command string) {
	fmt.Fprintf(w, "\n## %s\n\nPrinted by `%s`.\n\n| field | type | |\n| --- | --- | --- |\n", kind, strings.ReplaceAll(command, ", ", "` and `"))
	for _, r := range s.rows {
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", r[0], r[1], strings.ReplaceAll(r[2], "|", "or"))
	}
}

var (
	protoMessage = regexp.MustCompile(`^message (\w+) {`)
	protoField   = regexp.MustCompile(`^  [\w ]+ (\w+) = \d+; *// (.*)`)
)

// fieldComments are the comments beside the fields of this package's structs and of messages.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					for _, name := range f.Names {
						comments[spec.Name.Name+"."+name.Name] = strings.TrimSpace(f.Comment.Text())
					}
				}
			}
			return true
		})
	}
	text, err := os.ReadFile("../../api/isthmus/v1alpha1/services.proto")
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
	return comments
}

// TestTheJSONPageHasEveryField holds docs/reference/json.md to the types that are printed.
func TestTheJSONPageHasEveryField(t *testing.T) {
	comments := fieldComments(t)
	var made bytes.Buffer
	for _, p := range printedKinds {
		s := &schema{comments: comments}
		s.of(reflect.TypeOf(p.value), "")
		s.table(&made, p.kind, p.command)
	}
	s := &schema{comments: comments, rows: [][3]string{{"healthy", "boolean", "nothing is wrong"}, {"problems", "objects", "what is wrong"}}}
	s.of(reflect.TypeOf(Problem{}), "problems[].")
	s.ofMessage((&v1alpha1.StatusResponse{}).ProtoReflect().Descriptor(), "")
	s.table(&made, "Status", "isthmus status")
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
		t.Error("docs/reference/json.md is not what is printed: run go test ./show -update")
	}
}

// TestAStatusForProgramsHasNumbersAndTimes compares what is printed of a large status with the page.
func TestAStatusForProgramsHasNumbersAndTimes(t *testing.T) {
	var out bytes.Buffer
	if err := Print(&out, JSON, "Status", StatusOf(largeStatus(), noon)); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	s := &schema{}
	s.ofMessage((&v1alpha1.StatusResponse{}).ProtoReflect().Descriptor(), "")
	types := map[string]string{"apiVersion": "string", "kind": "string", "healthy": "boolean", "problems": "objects",
		"problems[].kind": "string", "problems[].names": "strings", "problems[].what": "string"}
	for _, r := range s.rows {
		types[r[0]] = r[1]
	}
	compare(t, types, "", got)
	if got["apiVersion"] != catalog.Version || got["healthy"] != false {
		t.Errorf("version %v, healthy %v", got["apiVersion"], got["healthy"])
	}
}

func compare(t *testing.T, types map[string]string, path string, value map[string]any) {
	t.Helper()
	for name, v := range value {
		at, is := path+name, ""
		switch v := v.(type) {
		case nil:
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
			is = "object"
			compare(t, types, at+".", v)
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
