package dapr

import "testing"

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
