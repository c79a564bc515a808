package objects

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

func placedAt(name, app, address string) string {
	return fmt.Sprintf(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppInstance","metadata":{"namespace":"shop","name":%q},"spec":{"app":%q,"address":%q}}`, name, app, address)
}

// A writer of an AppInstance gets a warning if another one has its address.
func TestAnAddressOfTwoInstancesIsWarnedOf(t *testing.T) {
	const here, elsewhere = "10.0.0.5:50002", "10.0.0.6:50002"
	s := newService(t, "isthmus.internal", true)
	s.mustApply(placedAt("b", "orders", here), placedAt("z", "zebra", "10.0.0.9:1"), placedAt("y", "zebra", "10.0.0.9:1"))
	for _, c := range []struct {
		what    string
		dryRun  bool
		objects []string
		want    string // the beginnings, one for each
	}{
		{"another address", true, []string{placedAt("a", "billing", elsewhere)}, ""},
		{"the address of one that is there", true, []string{placedAt("a", "billing", here)}, "AppInstance shop/b: the address 10.0.0.5:50002 for shop/orders is that of AppInstance shop/a too, for shop/billing"},
		{"and that moves away", true, []string{placedAt("a", "billing", here), placedAt("b", "orders", elsewhere)}, ""},
		{"what has no address", true, []string{east}, ""},
		{"for good", false, []string{placedAt("a", "billing", here)}, "AppInstance shop/b: "},
		{"once more, unchanged", false, []string{placedAt("a", "billing", here)}, "AppInstance shop/b: "},
		{"corrected", false, []string{placedAt("a", "billing", elsewhere)}, ""},
	} {
		answer, err := s.apply(c.dryRun, c.objects...)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if got := strings.Join(answer.GetWarnings(), "\n"); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	deleted, err := s.Delete(t.Context(), &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{{Kind: "AppInstance", Namespace: "shop", Name: "z"}}})
	if err != nil || len(deleted.GetWarnings()) > 0 {
		t.Errorf("a deletion: %v, %v", err, deleted.GetWarnings())
	}
	var many []string
	for n := range 50 {
		many = append(many, placedAt(fmt.Sprint("many-", n), "many", "10.0.1.1:1"))
	}
	if got := s.mustApply(many...).GetWarnings(); len(got) != mostWarnings+1 || !strings.HasPrefix(got[mostWarnings], "29 more ") {
		t.Errorf("%d warnings of many, the last %q", len(got), got[len(got)-1])
	}
}
