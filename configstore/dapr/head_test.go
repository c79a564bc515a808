package dapr

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
)

func TestAHeadTellsWhatWasWrittenSince(t *testing.T) {
	var h head
	var heads []head
	for i := range 5 {
		h = h.next(newNonce(), []string{fmt.Sprintf("%sCluster/c%d", api.KeyPrefix, i)})
		parsed, ok := parseHead(h.text())
		if !ok || !reflect.DeepEqual(parsed, h) {
			t.Fatalf("read %+v of %q, want %+v", parsed, h.text(), h)
		}
		heads = append(heads, h)
	}
	got, ok := h.since(heads[2])
	if want := []string{api.KeyPrefix + "Cluster/c4", api.KeyPrefix + "Cluster/c3"}; !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("since the third: %v, %t; want %v", got, ok, want)
	}
	if got, ok := h.since(h); !ok || len(got) != 0 {
		t.Errorf("since itself: %v, %t; want nothing", got, ok)
	}
	other := head{}.next(newNonce(), []string{api.KeyPrefix + "Cluster/c0"})
	if _, ok := h.since(other); ok {
		t.Error("a head of another store, with the revision of an older one, is taken for that")
	}
	if _, ok := heads[2].since(h); ok {
		t.Error("a head that went back is taken to go on")
	}
	many := h.next(newNonce(), nil)
	if _, ok := many.since(h); ok {
		t.Error("a batch of too many keys is taken for none")
	}
}

func TestAHeadTellsWhatWasAppendedByHand(t *testing.T) {
	const east, west, north = api.KeyPrefix + "Cluster/east", api.KeyPrefix + "Cluster/west", api.KeyPrefix + "Cluster/north"
	written := head{}.next(newNonce(), []string{north})
	parse := func(text string) head {
		h, ok := parseHead(text)
		if !ok {
			t.Fatalf("%q is no head", text)
		}
		return h
	}
	one := parse(written.text() + "+Cluster/east")
	two := parse(written.text() + "+Cluster/east+Cluster/west")
	after := two.next(newNonce(), []string{north})
	later := parse(after.text() + "\n+Cluster/west\n")
	for name, c := range map[string]struct {
		now, was head
		want     []string
		ok       bool
	}{
		"one appended":                   {one, written, []string{east}, true},
		"another":                        {two, one, []string{west}, true},
		"nothing":                        {two, two, nil, true},
		"a batch has taken over":         {parse(after.text()), one, []string{north, east, west}, true},
		"a batch, and one more":          {later, written, []string{north, east, west, west}, true},
		"gone back":                      {written, one, nil, false},
		"with no head ever":              {parse("+Cluster/east+Cluster/west"), parse("+Cluster/east"), []string{west}, true},
		"set in place of being appended": {parse("+Cluster/west"), parse("+Cluster/east"), nil, false},
		"the head was lost":              {parse("+Cluster/west"), two, nil, false},
	} {
		got, ok := c.now.since(c.was)
		if ok != c.ok || ok && !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %t; want %v, %t", name, got, ok, c.want, c.ok)
		}
	}
	if _, ok := parseHead(strings.Repeat("+Cluster/east", 10_000)); ok {
		t.Error("a text that grows without end is read each time")
	}
}

func TestAHeadStaysShort(t *testing.T) {
	long := make([]string, 10_000)
	for i := range long {
		long[i] = fmt.Sprintf("%sAppEndpoints/%s/app-%d", api.KeyPrefix, strings.Repeat("n", 60), i)
	}
	var h head
	for i := range 200 {
		h = h.next(newNonce(), long[:1+i%40])
		text := h.text()
		if len(text) > headLimit+40 {
			t.Fatalf("%d bytes", len(text))
		}
		parsed, ok := parseHead(text)
		if !ok || parsed.revision() != uint64(i+1) {
			t.Fatalf("read %+v of %q", parsed, text)
		}
		h = parsed
	}
	if len(h.batches) < 2 {
		t.Errorf("%d batches are kept, want several", len(h.batches))
	}
	if h = h.next(newNonce(), long); len(h.text()) > headLimit {
		t.Errorf("%d bytes", len(h.text()))
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add(head{}.next(newNonce(), []string{api.KeyPrefix + "Cluster/a"}).next(newNonce(), nil).text())
	f.Add("isthmus/1\n1 0011223344556677 *\n")
	f.Add("touched")
	f.Add("+Cluster/a+")
	f.Fuzz(func(t *testing.T, text string) {
		h, ok := parseHead(text)
		if !ok {
			return
		}
		if len(h.next(newNonce(), nil).text()) > headLimit {
			t.Errorf("%q is read as %+v", text, h)
		}
		if _, ok := h.since(h); !ok {
			t.Errorf("%q does not know itself", text)
		}
	})
}

func TestRevisionsChangeWithTheValue(t *testing.T) {
	a := parseRedis("x", "one||7")
	b := parseRedis("x", "two||7") // by hand, with the version left as it was
	c := parseRedis("x", "one||8")
	d := parseRedis("x", "one")
	seen := map[string]bool{}
	for _, h := range []held{a, b, c, d} {
		if h.value != "one" && h.value != "two" || seen[h.revision()] || h.revision() == "" {
			t.Errorf("%+v has the revision %s, which another has, or none", h, h.revision())
		}
		seen[h.revision()] = true
	}
}
