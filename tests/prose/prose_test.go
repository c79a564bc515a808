package prose

import (
	"reflect"
	"testing"
)

func TestMeasure(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Plainness
	}{
		"nothing":                    {"", Plainness{}},
		"no sentence":                {"# Title of a page\n\n| a | table of words |\n", Plainness{}},
		"two sentences":              {"The service drops it. The caller goes on well.", Plainness{Words: 9, Sentences: 2, Mean: 4.5, P90: 5}},
		"code does not count":        {"The service drops it.\n```\nnone of this counts here\n```\n", Plainness{Words: 4, Sentences: 1, Mean: 4, P90: 4}},
		"a link is its text":         {"Read [the page](a/long/address.md) first.", Plainness{Words: 4, Sentences: 1, Mean: 4, P90: 4}},
		"a paragraph ends":           {"one two three\n\nfour five six\n", Plainness{Words: 6, Sentences: 2, Mean: 3, P90: 3}},
		"noun clauses are counted":   {"It tells who asks what is there.", Plainness{Words: 7, Sentences: 1, Mean: 7, P90: 7, Clauses: 2000.0 / 7}},
		"items of a list are apart":  {"1. one two three\n2. four five six\n", Plainness{Words: 6, Sentences: 2, Mean: 3, P90: 3}},
		"short ones are no sentence": {"Yes. The service drops it.", Plainness{Words: 4, Sentences: 1, Mean: 4, P90: 4}},
	} {
		got := Measure(c.text)
		got.Longest, got.Nouns = "", nil // for people
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
