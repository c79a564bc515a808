package consul

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func path(n int) string { return fmt.Sprintf("%sAppEndpoints/shop/app-%d", isthmus.KeyPrefix, n) }

// written is a head after n writes, of one object each, at indexes 10, 20 and so on.
func written(t *testing.T, n int) head {
	t.Helper()
	var h head
	for i := range n {
		value, err := h.next([]string{path(i)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		h = parseHead(uint64(10*(i+1)), value)
	}
	return h
}

func TestAHeadTellsWhatWasWrittenSince(t *testing.T) {
	h := written(t, 3)
	marks := make([]mark, 3)
	for i, s := range h.steps {
		marks[i] = mark{s.Index, s.ID}
	}
	for name, c := range map[string]struct {
		since mark
		want  []string
		ok    bool
	}{
		"the first write":            {marks[0], []string{path(1), path(2)}, true},
		"the last write":             {marks[2], nil, true},
		"nothing known":              {mark{}, nil, false},
		"another write at its place": {mark{marks[0].index, "another"}, nil, false},
		"a later one":                {mark{40, marks[2].id}, nil, false},
	} {
		steps, ok := h.after(c.since)
		if got := touched(steps); ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("since %s: %v, %t; want %v, %t", name, got, ok, c.want, c.ok)
		}
	}
}

func TestAHeadStaysSmall(t *testing.T) {
	h := written(t, 1000)
	value, err := h.next([]string{path(1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(value); n > 4*headBytes {
		t.Errorf("it has %d bytes after 1,000 writes", n)
	}
	if n := len(h.steps); n < 50 {
		t.Errorf("it has %d writes; want 50 at least", n)
	}
	if h.steps[len(h.steps)-1].Index != 10_000 {
		t.Errorf("the last write is at %d", h.steps[len(h.steps)-1].Index)
	}
}

func TestAHeadOfAnotherHandDoesNotStayLarge(t *testing.T) {
	for what, steps := range map[string]string{
		"steps without a key": `{"id":"a","index":%d},`,
		"long ids":            `{"id":"` + strings.Repeat("a", 1000) + `","index":%d},`,
	} {
		var text strings.Builder
		text.WriteString(`{"steps":[`)
		for i := range 10_000 {
			fmt.Fprintf(&text, steps, i+1)
		}
		text.WriteString(`{"id":"a"}]}`)
		h := parseHead(20_000, []byte(text.String()))
		if h.mark() == (mark{}) {
			t.Fatalf("%s: not read as a head", what)
		}
		value, err := h.next([]string{path(1)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(value); n > 64*headBytes {
			t.Errorf("%s: it has %d bytes after one more write", what, n)
		}
	}
}

func FuzzHead(f *testing.F) {
	var h head
	for i := range 3 {
		value, err := h.next([]string{path(i), isthmus.KeyPrefix + "Cluster/east"}, nil)
		if err != nil {
			f.Fatal(err)
		}
		h = parseHead(uint64(i+1), value)
		f.Add(uint64(i+1), value)
	}
	for _, text := range []string{"", "{}", `{"steps":[{}]}`, `{"steps":[{"id":"a","keys":["../x"]}]}`, `{"steps":[{"id":"a","index":9},{"id":"b"}]}`,
		`{"steps":[{"id":"` + strings.Repeat("a", headBytes+1) + `"}]}`} {
		f.Add(uint64(5), []byte(text))
	}
	f.Fuzz(func(t *testing.T, index uint64, value []byte) {
		h := parseHead(index, value)
		for _, s := range h.steps {
			steps, ok := h.after(mark{s.Index, s.ID})
			if !ok {
				t.Fatalf("a head of %q does not know its own step %+v", value, s)
			}
			if now, ok := carried(steps, nil); ok && len(now.pairs)+len(now.missing) != len(touched(steps)) {
				t.Fatalf("a head of %q carries %+v", value, now)
			}
			for _, path := range touched(steps) {
				if _, err := isthmus.ParseKeyPath(path); err != nil {
					t.Fatalf("a head of %q names a key of no object: %v", value, err)
				}
			}
		}
		before := h.mark()
		value, err := h.next([]string{path(1)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if index == 0 || index == 1<<64-1 || before == (mark{}) || h.steps[len(h.steps)-1].size() > headBytes {
			return // there is no other head before the one more write, or it leads too far back
		}
		if steps, ok := parseHead(index+1, value).after(before); !ok || !slices.Equal(touched(steps), []string{path(1)}) {
			t.Fatalf("after one more write: since it %v, %t", steps, ok)
		}
	})
}

func TestAHeadCarriesWhatTheNewestWritesMade(t *testing.T) {
	var h head
	write := func(index uint64, paths []string, values ...[]byte) {
		t.Helper()
		value, err := h.next(paths, values)
		if err != nil {
			t.Fatal(err)
		}
		h = parseHead(index, value)
	}
	write(10, []string{path(0)}, []byte(`{"a":0}`))
	write(20, []string{path(1), path(2)}, []byte(`{"a":1}`), nil)
	write(30, []string{path(1)}, []byte(`{"a":2}`))
	now, ok := carried(h.steps[1:], nil)
	want := []configstore.Pair{{Path: path(1), Value: []byte(`{"a":2}`), Revision: "30"}}
	if !ok || !reflect.DeepEqual(now.pairs, want) || !slices.Equal(now.missing, []string{path(2)}) {
		t.Errorf("after the first write: %+v, %t", now, ok)
	}
	now, ok = carried(h.steps, map[string]string{path(0): "15", path(1): "31", path(2): "20"})
	if !ok || len(now.pairs) != 0 || !slices.Equal(now.missing, []string{path(2)}) {
		t.Errorf("with what other hands made of it later: %+v, %t; want the deletion only", now, ok)
	}
	write(40, []string{path(3)})
	write(50, []string{path(4)}, []byte(`{"a":4}`))
	if now, ok := carried(h.steps[2:], nil); ok {
		t.Errorf("with a write that does not say its value: %+v", now)
	}
	large := []byte(`"` + strings.Repeat("x", headValues) + `"`)
	write(60, []string{path(5)}, large)
	write(70, []string{path(6)}, []byte(`{"a":6}`))
	for i, s := range h.steps {
		if carries := s.Values != nil; carries != (s.Index == 70) {
			t.Errorf("write %d carries values: %t; want those after the large one", i, carries)
		}
	}
}
