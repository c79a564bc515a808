package consul

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	isthmus "github.com/isthmus-mesh/isthmus/api"
)

func path(n int) string { return fmt.Sprintf("%sAppEndpoints/shop/app-%d", isthmus.KeyPrefix, n) }

// written is a head after n writes, of one object each, at indexes 10, 20 and so on.
func written(t *testing.T, n int) head {
	t.Helper()
	var h head
	for i := range n {
		value, err := h.next([]string{path(i)})
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
		got, ok := h.since(c.since)
		if ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("since %s: %v, %t; want %v, %t", name, got, ok, c.want, c.ok)
		}
	}
}

func TestAHeadStaysSmall(t *testing.T) {
	h := written(t, 1000)
	value, err := h.next([]string{path(1)})
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
		value, err := h.next([]string{path(1)})
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
		value, err := h.next([]string{path(i), isthmus.KeyPrefix + "Cluster/east"})
		if err != nil {
			f.Fatal(err)
		}
		h = parseHead(uint64(i+1), value)
		f.Add(uint64(i+1), value)
	}
	for _, text := range []string{"", "{}", `{"steps":[{}]}`, `{"steps":[{"id":"a","keys":["../x"]}]}`, `{"steps":[{"id":"a","index":9},{"id":"b"}]}`} {
		f.Add(uint64(5), []byte(text))
	}
	f.Fuzz(func(t *testing.T, index uint64, value []byte) {
		h := parseHead(index, value)
		for _, s := range h.steps {
			paths, ok := h.since(mark{s.Index, s.ID})
			if !ok {
				t.Fatalf("a head of %q does not know its own step %+v", value, s)
			}
			for _, path := range paths {
				if _, err := isthmus.ParseKeyPath(path); err != nil {
					t.Fatalf("a head of %q names a key of no object: %v", value, err)
				}
			}
		}
		before := h.mark()
		value, err := h.next([]string{path(1)})
		if err != nil {
			t.Fatal(err)
		}
		if index == 0 || index == 1<<64-1 || before == (mark{}) {
			return
		}
		if paths, ok := parseHead(index+1, value).since(before); !ok || !slices.Equal(paths, []string{path(1)}) {
			t.Fatalf("after one more write: since it %v, %t", paths, ok)
		}
	})
}
