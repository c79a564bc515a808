package catalog

import (
	"fmt"
	"strings"
	"testing"
)

func TestZonesOfInstances(t *testing.T) {
	for _, c := range []struct {
		of   []string
		want string
	}{
		{nil, ""},
		{[]string{"", ""}, ""},
		{[]string{"a"}, "a: 1"},
		{[]string{"b", "", "a", "b"}, "a: 1, b: 2, unknown: 1"},
	} {
		z := NewLabels(c.of)
		if got := z.String(); got != c.want {
			t.Errorf("zones of %q: %q, want %q", c.of, got, c.want)
		}
		if (z == nil) != (c.want == "") {
			t.Errorf("zones of %q are %v", c.of, z)
		}
		names, of := z.Parts()
		back, err := ParseLabels(names, of, len(c.of))
		if err != nil || !back.Equal(z) {
			t.Errorf("zones of %q came back as %v, %v", c.of, back, err)
		}
		for i, zone := range c.of {
			if z.At(i) != zone {
				t.Errorf("instance %d of %q is in %q", i, c.of, z.At(i))
			}
		}
	}
	if z := NewLabels([]string{"b", "a", "b"}).Of([]int{0, 2}); z.String() != "b: 2" || !z.Equal(NewLabels([]string{"b", "b"})) {
		t.Errorf("some of the instances are in %v", z)
	}
}

func TestMoreZonesThanCanBeTold(t *testing.T) {
	of := make([]string, 300)
	for i := range of {
		of[i] = fmt.Sprintf("zone-%03d", i)
	}
	z := NewLabels(of)
	if z.At(254) != "zone-254" || z.At(255) != "" {
		t.Errorf("instances are in %q and %q", z.At(254), z.At(255))
	}
}

func TestZonesThatCantBeUsed(t *testing.T) {
	for what, c := range map[string]struct {
		names []string
		of    []byte
	}{
		"names alone":      {[]string{"a"}, nil},
		"places alone":     {nil, []byte{1, 1}},
		"one too few":      {[]string{"a"}, []byte{1}},
		"one too many":     {[]string{"a"}, []byte{1, 1, 1}},
		"beyond the last":  {[]string{"a"}, []byte{1, 2}},
		"in none at all":   {[]string{"a"}, []byte{0, 0}},
		"twice":            {[]string{"a", "a"}, []byte{1, 2}},
		"not in order":     {[]string{"b", "a"}, []byte{1, 2}},
		"without a name":   {[]string{"", "a"}, []byte{1, 2}},
		"too many":         {make([]string, 256), []byte{1, 2}},
		"a name too long":  {[]string{strings.Repeat("a", 64)}, []byte{1, 1}},
		"not to be shown":  {[]string{"a\x1b"}, []byte{1, 1}},
		"not to be stored": {[]string{"a\xff"}, []byte{1, 1}},
	} {
		if z, err := ParseLabels(c.names, c.of, 2); err == nil {
			t.Errorf("%s: taken as %v", what, z)
		}
	}
	if z, err := ParseLabels([]string{"a"}, nil, 0); err == nil {
		t.Errorf("of no instance: taken as %v", z)
	}
}
