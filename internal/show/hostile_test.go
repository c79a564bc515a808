package show

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/contexts"
)

// hostile is what a text from outside may be: a command to the terminal, a change of the direction,
// and a line that looks like ours.
const hostile = "\x1b[2J\u202ea\r\u2028\a\nFORGED line"

// TestNoTextFromOutsideCommandsATerminal fills every text of every answer with the same hostile one.
func TestNoTextFromOutsideCommandsATerminal(t *testing.T) {
	status := fillMessage(&v1alpha1.StatusResponse{})
	apps := []*v1alpha1.AppState{fillMessage(&v1alpha1.AppState{})}
	calls := []*v1alpha1.Call{fillMessage(&v1alpha1.Call{})}
	for name, write := range map[string]func(io.Writer) error{
		"status":           func(w io.Writer) error { return Status(w, status, false, noon) },
		"status --details": func(w io.Writer) error { return Status(w, status, true, noon) },
		"status --peer":    func(w io.Writer) error { return Peer(w, status, hostile, noon) },
		"summary":          func(w io.Writer) error { Summary(w, status, noon); return nil },
		"events":           func(w io.Writer) error { return EventLine(w, fillMessage(&v1alpha1.Event{}), time.UTC) },
		"apps":             func(w io.Writer) error { return Apps(w, apps, 0, false) },
		"apps --details":   func(w io.Writer) error { return Apps(w, apps, 0, true) },
		"sidecars": func(w io.Writer) error {
			return Sidecars(w, []*v1alpha1.SidecarState{fillMessage(&v1alpha1.SidecarState{})}, noon)
		},
		"calls":           func(w io.Writer) error { return Calls(w, calls, noon) },
		"calls --to":      func(w io.Writer) error { return Callers(w, calls, 3) },
		"calls --inbound": func(w io.Writer) error { Inbound(w, hostile, hostile, calls); return nil },
		"explain":         func(w io.Writer) error { return Explain(w, hostile, hostile, fillMessage(&v1alpha1.Decision{})) },
		"check":           func(w io.Writer) error { return Diagnose(w, fillMessage(&v1alpha1.CheckResponse{}), true) },
		"store check":     func(w io.Writer) error { return Check(w, fillMessage(&v1alpha1.StoreCheck{})) },
		"store copy":      func(w io.Writer) error { return Copy(w, fillMessage(&v1alpha1.StoreCopy{})) },
		"apply":           func(w io.Writer) error { return Apply(w, fillMessage(&v1alpha1.ApplyResponse{})) },
		"analyze":         func(w io.Writer) error { Analysis(w, fillMessage(&v1alpha1.AnalyzeResponse{})); return nil },
		"contexts":        func(w io.Writer) error { return Contexts(w, Table, fill1(&contexts.File{})) },
		"link list":       func(w io.Writer) error { return LinkTables(w, fillMessage(&v1alpha1.InvitationsResponse{}), noon) },
		"trust": func(w io.Writer) error {
			return Trust(w, hostile, fillMessage(&v1alpha1.StatusResponse{}).GetTrust(), noon)
		},
	} {
		for _, columns := range []int{0, 80} {
			var b bytes.Buffer
			if err := write(&Screen{Writer: &b, Columns: columns}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !strings.Contains(b.String(), "FORGED") {
				t.Errorf("%s shows none of the texts:\n%s", name, b.String())
			}
			for line := range strings.Lines(b.String()) {
				line = strings.TrimSuffix(line, "\n")
				if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.HasPrefix(line, "FORGED") {
					t.Errorf("%s in %d columns writes %q", name, columns, line)
				}
			}
		}
	}
}

// TestEveryLineGoesThroughSay: only what draws pictures or writes for programs prints by itself.
func TestEveryLineGoesThroughSay(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{"screen.go": true, "show.go": true, "message.go": true, "picture.go": true, "objects.go": true, "history.go": true, "link.go": true, "diff.go": true, "watch.go": true}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !own[name] && !strings.HasSuffix(name, "_test.go") && bytes.Contains(text, []byte("fmt.Fprint")) && !bytes.Contains(text, []byte("fmt.Fprintf(&b")) {
			t.Errorf("%s prints by package fmt; use Say, which keeps texts from outside in their line", name)
		}
	}
}

// fillMessage sets every text of a message, and gives each list two entries.
func fillMessage[M proto.Message](m M) M {
	fillProto(m.ProtoReflect(), 0)
	return m
}

func fillProto(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		one := func(v protoreflect.Value) protoreflect.Value {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(hostile)
			case protoreflect.MessageKind:
				fillProto(v.Message(), depth+1)
			}
			return v
		}
		switch {
		case depth > 6 || f.IsMap():
		case f.IsList() && (f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.MessageKind):
			list := m.Mutable(f).List()
			list.Append(one(list.NewElement()))
			list.Append(one(list.NewElement()))
		case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.MessageKind && !f.IsList():
			m.Set(f, one(m.NewField(f)))
		}
	}
}

// fill1 sets every text of a value, and gives each list two entries.
func fill1[T any](v T) T {
	fillValue(reflect.ValueOf(&v).Elem(), 0)
	return v
}

func fillValue(v reflect.Value, depth int) {
	if depth > 6 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fillValue(v.Index(0), depth+1)
			fillValue(v.Index(1), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fillValue(v.Field(i), depth+1)
		}
	}
}
