package derived

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
)

// TestDerivedObjectsGiveWayToWrittenOnes: of one name, one object is delivered, and the derived
// one is back when the written one goes.
func TestDerivedObjectsGiveWayToWrittenOnes(t *testing.T) {
	var log strings.Builder
	d := New(slog.New(slog.NewTextHandler(&log, nil)))
	document := smimcs.DecodeJSON("x", []byte(`{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceExport",
		"metadata":{"namespace":"shop","name":"orders"},"spec":{"exportedLabels":{"a":"b"}}}`))
	key := catalog.Key{Kind: catalog.KindAppExport, Namespace: "shop", Name: "orders"}
	own := configstore.Stored{Object: &catalog.AppExport{App: catalog.App{Namespace: "shop", ID: "orders"}}, Revision: "1"}
	written := map[catalog.Key]bool{}
	// told is a change with what derives: each object as written or derived.
	told := func(c configstore.Change, touched ...catalog.Key) string {
		keys := map[catalog.Key]bool{}
		for _, key := range touched {
			keys[key] = true
		}
		d.Add(&c, maps.Keys(keys), func(key catalog.Key) bool { return written[key] })
		var all []string
		for _, s := range c.Objects {
			all = append(all, fmt.Sprint("put ", s.Object.Origin()))
		}
		for range c.Deleted {
			all = append(all, "deleted")
		}
		return strings.Join(append(all, fmt.Sprint(len(d.Refused()))), ", ")
	}
	step := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	const derived = "put from ServiceExport shop/orders"
	d.Take(document.ID, document)
	step("a document", told(configstore.Change{}), derived+", 0")
	d.Take(document.ID, document)
	step("the same again", told(configstore.Change{}), "0")
	step("all of it", told(configstore.Change{Full: true}), derived+", 0")
	written[key] = true
	step("a written object", told(configstore.Change{Objects: []configstore.Stored{own}}, key), "put , 1")
	step("a written object that is refused", told(configstore.Change{}, key), "1")
	delete(written, key)
	step("which is deleted", told(configstore.Change{Deleted: []catalog.Key{key}}, key), derived+", 0")
	d.Take(document.ID, nil)
	step("no document", told(configstore.Change{}), "deleted, 0")
	if n := strings.Count(log.String(), "exportedLabels and exportedAnnotations have no equivalent"); n != 1 {
		t.Errorf("noted %d times:\n%s", n, log.String())
	}
}
