package catalog

import "testing"

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text, want string
		most       int
	}{
		{"short enough", "short enough", 12},
		{"verify candidate authority", "verify…", 16},
		{"verify candidate authority", "verify candidate…", 19},
		{"verify candidate authority", "verify candidate…", 20},
		{"a verylongwordwithoutanend", "a verylongwo…", 15},
		{"ééééé", "éé…", 8},
		{"ab", "…", 1},
		{"", "", 0},
	} {
		if got := Clip(c.text, c.most); got != c.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
