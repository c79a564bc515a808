package kinds

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestAKindHasManyNames(t *testing.T) {
	for want, names := range map[catalog.Kind]string{
		catalog.KindAppEndpoints: "AppEndpoints appendpoints APPENDPOINTS appendpoint aep AEP",
		catalog.KindAppExport:    "AppExport appexports axp",
		catalog.KindActorType:    "ActorType actortypes acty",
		catalog.KindAppInstance:  "AppInstance appinstances ain",
		catalog.KindCluster:      "Cluster clusters icl",
		All:                      "all ALL",
	} {
		for name := range strings.FieldsSeq(names) {
			if got, err := Parse(name); err != nil || got != want {
				t.Errorf("%s is %q (%v), want %q", name, got, err, want)
			}
		}
	}
	for name, want := range map[string]string{
		"clutser": `did you mean "cluster"?`,
		"pods":    "want actortypes (acty), appendpoints (aep), appexports (axp), appinstances (ain), clusters (icl) or all",
		"":        "unknown kind",
	} {
		if _, err := Parse(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestEveryKindCanBeNamed(t *testing.T) {
	for _, kind := range catalog.Kinds() {
		if got, err := Parse(string(kind)); err != nil || got != kind {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
	if len(Completions()) != len(catalog.Kinds())+1 {
		t.Errorf("a shell offers %v", Completions())
	}
}

func TestANameIsReadByItsKind(t *testing.T) {
	for _, c := range []struct {
		kind catalog.Kind
		name string
		want string // the key, or a part of the error
	}{
		{catalog.KindAppEndpoints, "shop/checkout", "AppEndpoints shop/checkout"},
		{catalog.KindCluster, "east", "Cluster east"},
		{catalog.KindAppEndpoints, "checkout", "want namespace/name"},
		{catalog.KindAppExport, "shop/Orders", "app-id"},
		{catalog.KindAppInstance, "shop/orders-vm1", "AppInstance shop/orders-vm1"},
		{catalog.KindAppInstance, "shop/Orders", "instance name"},
		{catalog.KindCluster, "shop/east", "cluster name"},
	} {
		key, err := ParseKey(c.kind, c.name, "")
		got := key.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %s, want %s", c.kind, c.name, got, c.want)
		}
	}
}
