package configstore

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
)

const headRoom = 3500

func pathOf(name string) string { return api.KeyPrefix + "Cluster/" + name }

// parsed is a head that another program reads.
func parsed(t *testing.T, text string) Head {
	t.Helper()
	h, ok := ParseHead(text, 0)
	if !ok {
		t.Fatalf("%q is no head", text)
	}
	return h
}

func TestAHeadTellsWhatWasWrittenSince(t *testing.T) {
	var h Head
	var heads []Head
	for i := range 5 {
		h = h.Next([]string{pathOf(fmt.Sprint(i))}, nil)
		if got := parsed(t, h.Text(headRoom)); !reflect.DeepEqual(got, h) {
			t.Fatalf("read %+v of %q, want %+v", got, h.Text(headRoom), h)
		}
		heads = append(heads, h)
	}
	other := Head{}.Next([]string{pathOf("0")}, nil)
	restored := heads[2]
	restored.Batches = slices.Clone(restored.Batches)
	restored.Batches[0].Nonce = other.Batches[0].Nonce
	for name, c := range map[string]struct {
		now, was Head
		want     []string
		ok       bool
	}{
		"the third":                        {h, heads[2], []string{pathOf("3"), pathOf("4")}, true},
		"itself":                           {h, h, nil, true},
		"nothing":                          {h, Head{}, nil, false},
		"a head of another store":          {h, other, nil, false},
		"another batch with that revision": {h, restored, nil, false},
		"a head that is ahead":             {heads[2], h, nil, false},
		"a batch of too many keys":         {h.Next(nil, nil), h, nil, false},
	} {
		if got, ok := c.now.PathsSince(c.was); ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("since %s: %v, %t; want %v, %t", name, got, ok, c.want, c.ok)
		}
	}
}

func TestAHeadTellsWhatWasAppendedByHand(t *testing.T) {
	east, west, north := pathOf("east"), pathOf("west"), pathOf("north")
	written := Head{}.Next([]string{north}, [][]byte{[]byte(`{"name":"a+b"}`)})
	text := written.Text(headRoom)
	one, two := parsed(t, text+"+Cluster/east"), parsed(t, text+"+Cluster/east+Cluster/west")
	after := two.Next([]string{north}, nil)
	for name, c := range map[string]struct {
		now, was Head
		want     []string
		ok       bool
	}{
		"one appended":                   {one, written, []string{east}, true},
		"another":                        {two, one, []string{west}, true},
		"nothing":                        {two, two, nil, true},
		"a batch has taken over":         {parsed(t, after.Text(headRoom)), one, []string{east, north, west}, true},
		"a batch, and one more":          {parsed(t, after.Text(headRoom)+"\n+Cluster/west\n"), written, []string{east, north, west}, true},
		"gone back":                      {written, one, nil, false},
		"with no head ever":              {parsed(t, "+Cluster/east+Cluster/west"), parsed(t, "+Cluster/east"), []string{west}, true},
		"set in place of being appended": {parsed(t, "+Cluster/west"), parsed(t, "+Cluster/east"), nil, false},
		"the head was lost":              {parsed(t, "+Cluster/west"), two, nil, false},
	} {
		got, ok := c.now.PathsSince(c.was)
		if ok != c.ok || ok && !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %t; want %v, %t", name, got, ok, c.want, c.ok)
		}
	}
	if _, ok := ParseHead(strings.Repeat("+Cluster/east", 10_000), 0); ok {
		t.Error("a text that grows without end is read each time")
	}
}

func TestAHeadStaysShort(t *testing.T) {
	long := make([]string, 10_000)
	for i := range long {
		long[i] = fmt.Sprintf("%sAppEndpoints/%s/app-%d", api.KeyPrefix, strings.Repeat("n", 60), i)
	}
	var h Head
	for i := range 200 {
		text := h.Next(long[:1+i%40], nil).Text(headRoom)
		if len(text) > headRoom+40 {
			t.Fatalf("%d bytes", len(text))
		}
		if h = parsed(t, text); h.Revision() != uint64(i+1) {
			t.Fatalf("read %+v of %q", h, text)
		}
	}
	if h = parsed(t, h.Next(long[:1], nil).Text(headRoom)); len(h.Batches) < 2 {
		t.Errorf("%d batches are kept, want several", len(h.Batches))
	}
	if text := h.Next(long, nil).Text(headRoom); len(text) > headRoom {
		t.Errorf("%d bytes", len(text))
	}
}

func TestAHeadCarriesTheNewestValues(t *testing.T) {
	var h Head
	write := func(paths []string, values ...[]byte) {
		t.Helper()
		h = parsed(t, h.Next(paths, values).Text(headRoom))
	}
	write([]string{pathOf("a")}, []byte(`{"plus":"+","line":"\n"}`))
	write([]string{pathOf("b"), pathOf("c")}, []byte(`{"b":1}`), nil)
	write([]string{pathOf("d")})
	want := [][][]byte{nil, {[]byte(`{"b":1}`), nil}, {[]byte(`{"plus":"+","line":"\n"}`)}}
	for i, b := range h.Batches {
		if !reflect.DeepEqual(b.Values, want[i]) {
			t.Errorf("batch %d has the values %q, want %q", i, b.Values, want[i])
		}
	}
	write([]string{pathOf("e")}, []byte(`"`+strings.Repeat("x", headValues)+`"`))
	write([]string{pathOf("f")}, []byte(`{"f":1}`))
	for i, b := range h.Batches {
		if has := b.Values != nil; has != (i == 0) {
			t.Errorf("batch %d has values: %t; want those after the large one", i, has)
		}
	}
}

// earlier is a head as the store in Consul wrote it until it had this format.
const earlier = `{"about":"Which keys Isthmus wrote last.","steps":[
	{"id":"0011223344556677","index":10,"keys":["Cluster/east"]},
	{"id":"8899aabbccddeeff","keys":["Cluster/east","Cluster/west"],"values":[{"a":1},null]}]}`

func TestAHeadOfAnEarlierVersionIsReadAndReplaced(t *testing.T) {
	h, ok := ParseHead(earlier, 20)
	want := Head{Batches: []Batch{
		{Revision: 20, Nonce: "8899aabbccddeeff", Paths: []string{pathOf("east"), pathOf("west")}, Values: [][]byte{[]byte(`{"a":1}`), nil}},
		{Revision: 10, Nonce: "0011223344556677", Paths: []string{pathOf("east")}},
	}}
	if !ok || !reflect.DeepEqual(h, want) {
		t.Fatalf("read %+v, %t; want %+v", h, ok, want)
	}
	text := h.Next([]string{pathOf("north")}, nil).Text(headRoom)
	now, ok := ParseHead(text, 30)
	if got, known := now.PathsSince(h); !ok || !known || !slices.Equal(got, []string{pathOf("north")}) {
		t.Errorf("since the earlier head %q has %v, %t, %t", text, got, ok, known)
	}
	if _, ok := ParseHead(earlier, 0); ok {
		t.Error("it is read in a store that never wrote it")
	}
}

func FuzzParseHead(f *testing.F) {
	h := Head{}.Next([]string{pathOf("a")}, [][]byte{[]byte(`{"a":"+"}`)})
	for _, text := range []string{
		"", "{}", "touched", "+Cluster/a+", "isthmus/1\n1 0011223344556677 *\n", "isthmus/1\n= [{}]\n", earlier,
		`{"steps":[{}]}`, `{"steps":[{"id":"0011223344556677","index":9,"keys":["a"]},{"id":"0011223344556677","keys":["../x"]}]}`,
		h.Text(headRoom), h.Next(nil, nil).Text(headRoom),
	} {
		f.Add(text, uint64(0))
		f.Add(text, uint64(5))
	}
	f.Fuzz(func(t *testing.T, text string, at uint64) {
		h, ok := ParseHead(text, at)
		if !ok {
			return
		}
		if batches, ok := h.Since(h); !ok || len(batches) > 0 {
			t.Errorf("%q does not know itself", text)
		}
		if n := len(h.Next(nil, nil).Text(headRoom)); n > headRoom+headValues+2000 {
			t.Errorf("%q takes %d bytes after one more batch", text, n)
		}
		if len(h.Batches) == 0 || at >= 1<<62 || h.Revision() >= 1<<62 {
			return
		}
		next := h.Next([]string{pathOf("next")}, nil).Text(2 * longestHead)
		if len(next) > longestHead {
			return
		}
		if now, ok := ParseHead(next, 0); ok {
			batches, known := now.Since(h)
			if !known || len(batches) != 1 || !slices.Contains(batches[0].Paths, pathOf("next")) {
				t.Errorf("after one more batch on %q: %+v, %t", text, batches, known)
			}
		} else {
			t.Errorf("one more batch on %q makes %q, which is no head", text, next)
		}
	})
}
