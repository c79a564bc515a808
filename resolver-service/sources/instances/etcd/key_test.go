package etcd

import (
	"os"
	"strings"
	"testing"
)

// The key and the value that the page shows are those of an instance.
func TestThePageShowsAnInstance(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/reference/instances.md")
	if err != nil {
		t.Fatal(err)
	}
	lines, shown := strings.Split(string(page), "\n"), 0
	for at, line := range lines {
		key, ok := strings.CutPrefix(line, rootOf("", "west"))
		if !ok {
			continue
		}
		shown++
		if i, err := decode(key, []byte(lines[at+1])); err != nil || i.ID != i.Address.String() {
			t.Errorf("%s: %+v, %v", line, i, err)
		}
	}
	if shown == 0 {
		t.Error("the page shows no key")
	}
}
