package prose

import "testing"

func TestMeasure(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Plainness
	}{
		"nothing":                    {"", Plainness{}},
		"no sentence":                {"# Title of a page\n\n| a | table of words |\n", Plainness{}},
		"two sentences":              {"The service drops it. The caller goes on well.", Plainness{9, 2, 4.5, 5, 0}},
		"code does not count":        {"The service drops it.\n```\nnone of this counts here\n```\n", Plainness{4, 1, 4, 4, 0}},
		"a link is its text":         {"Read [the page](a/long/address.md) first.", Plainness{4, 1, 4, 4, 0}},
		"a paragraph ends":           {"one two three\n\nfour five six\n", Plainness{6, 2, 3, 3, 0}},
		"noun clauses are counted":   {"It tells who asks what is there.", Plainness{7, 1, 7, 7, 2000.0 / 7}},
		"short ones are no sentence": {"Yes. The service drops it.", Plainness{4, 1, 4, 4, 0}},
	} {
		if got := Measure(c.text); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
