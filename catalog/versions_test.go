package catalog

import (
	"strings"
	"testing"
)

func TestVersionsMatch(t *testing.T) {
	for _, c := range []struct {
		patterns Versions
		yes, no  string
	}{
		{"", "1.0,2.0", ""},
		{"2.*", "2.,2.0,2.1.5-rc.1", "2,12.0,1.2.0"},
		{"2.?,3", "2.1,3", "2.10,3.0,2."},
		{"*", "1,a-b_c+d", ""},
		{"*-rc.*", "2.0-rc.1", "2.0"},
	} {
		for _, v := range strings.Split(c.yes, ",") {
			if !c.patterns.Match(v) {
				t.Errorf("%q does not match %q", c.patterns, v)
			}
		}
		for _, v := range strings.Split(c.no, ",") {
			if v != "" && c.patterns.Match(v) {
				t.Errorf("%q matches %q", c.patterns, v)
			}
		}
		if c.patterns.Match("") != (c.patterns == "") {
			t.Errorf("%q and an instance without a version", c.patterns)
		}
		if back, err := ParseVersions(string(c.patterns)); err != nil || back != c.patterns {
			t.Errorf("%q came back as %q, %v", c.patterns, back, err)
		}
	}
	for _, odd := range []string{"[", "2,", ",", "2.*,[a-z]", `\`, strings.Repeat("2,", MaxVersions) + "2", strings.Repeat("2", MaxVersion+1)} {
		if v, err := ParseVersions(odd); err == nil {
			t.Errorf("%q was taken as %q", odd, v)
		}
	}
}

// Two instances never share a token, nor one by its version and another by itself.
func TestTokensOfVersionsAreTheirOwn(t *testing.T) {
	tokens := []uint32{7, 8}
	labels := NewLabels([]string{"2.1", ""})
	all := VersionTokens(tokens, labels)
	if len(all) != 2 || all[0] == 7 || all[1] != 8 || all[0] == VersionToken(7, "2.2") {
		t.Errorf("tokens %x", all)
	}
	clash := []uint32{7, VersionToken(7, "2.1")}
	if all := VersionTokens(clash, labels); all != nil {
		t.Errorf("%x by their versions are %x, so one has the name of the other", clash, all)
	}
	if all := VersionTokens(tokens, nil); &all[0] != &tokens[0] {
		t.Error("without versions they take room")
	}
}
