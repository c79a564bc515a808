package topology

import (
	"reflect"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// TestSameExport holds same to every field that an export has.
func TestSameExport(t *testing.T) {
	whole := PeerExport{
		App:   catalog.App{Namespace: "shop", ID: "orders"},
		Allow: []catalog.Allow{{Cluster: "west"}}, Ready: 3, Draining: 1, Shards: 3, Addresses: []string{"10.0.0.1:50002"},
		Instances: []uint32{7}, Zones: catalog.NewLabels([]string{"a"}), Versions: catalog.NewLabels([]string{"2.1"}), Actor: &ActorExport{Object: "cart"}, Named: true,
	}
	copied := whole
	copied.Allow, copied.Addresses = []catalog.Allow{{Cluster: "west"}}, []string{"10.0.0.1:50002"}
	copied.Instances, copied.Zones, copied.Actor = []uint32{7}, catalog.NewLabels([]string{"a"}), &ActorExport{Object: "cart"}
	copied.Versions = catalog.NewLabels([]string{"2.1"})
	if !whole.same(&copied) {
		t.Error("an export is not the same as a copy of it")
	}
	for i := range reflect.TypeFor[PeerExport]().NumField() {
		other := whole
		field := reflect.ValueOf(&other).Elem().Field(i)
		if name := reflect.TypeFor[PeerExport]().Field(i).Name; field.IsZero() {
			t.Errorf("give %s a value above", name)
		} else if field.SetZero(); whole.same(&other) || other.same(&whole) {
			t.Errorf("without %s an export is still the same", name)
		}
	}
}

// TestRemotes puts in clusters in no order, and takes them out.
func TestRemotes(t *testing.T) {
	var r remotes
	for i, cluster := range []string{"north", "east", "west", "east"} {
		r.put(cluster, &PeerExport{Ready: uint32(i)})
	}
	r.remove("north")
	r.remove("south")
	if len(r) != 2 || r[0].cluster != "east" || r[1].cluster != "west" || r.of("east").Ready != 3 || r.of("north") != nil {
		t.Errorf("%+v; want east with 3 and west with 2", r)
	}
}
