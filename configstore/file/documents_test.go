package file

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func target(to string) string {
	return fmt.Sprintf("apiVersion: access.smi-spec.io/v1alpha3\nkind: TrafficTarget\nmetadata: {name: a, namespace: shop}\nspec:\n"+
		"  destination: {kind: ServiceAccount, name: %s}\n  sources: [{kind: ServiceAccount, name: checkout}]\n", to)
}

const split = "---\napiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\nmetadata: {name: a, namespace: shop}\nspec: {service: orders, backends: [{service: orders-east, weight: 1}]}\n"

var checkout = catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}

// calls is what the newest selection of checkout that its reader was told of has; "gone" if none.
func (d *directory) calls() string {
	calls := "gone"
	for _, c := range d.All() {
		for _, key := range c.Deleted {
			if key == checkout {
				calls = "gone"
			}
		}
		for _, s := range c.Objects {
			if o, ok := s.Object.(*catalog.AppEndpoints); ok && s.Object.Key() == checkout {
				calls = o.Source.From
				for _, e := range o.Endpoints {
					calls += fmt.Sprint(" ", e.App.ID, len(e.Routes))
				}
			}
		}
	}
	return strings.ReplaceAll(calls, d.path+"/", "")
}

func (d *directory) awaitCalls(want string) {
	d.t.Helper()
	defer func() {
		if got := d.calls(); got != want {
			d.t.Logf("checkout calls %s", got)
		}
	}()
	d.AwaitStatus("checkout calls "+want, func(configstore.Status) bool { return d.calls() == want })
}

func TestDocumentsOfOtherStandardsInFiles(t *testing.T) {
	d := begin(t, "smi.yaml", target("orders")+split)
	d.awaitCalls("TrafficTarget shop/a (smi.yaml:1) orders0")
	d.write("east.yaml", clusterText("east", "a"))
	d.awaitCalls("TrafficTarget shop/a (smi.yaml:1), TrafficSplit shop/a (smi.yaml:8) orders1")

	// A file that is no YAML takes nothing away, and neither does a mistake.
	d.write("smi.yaml", target("orders")+"]")
	d.AwaitStatus("smi.yaml is broken", func(s configstore.Status) bool { return len(s.Refused) == 1 })
	d.write("smi.yaml", strings.Replace(target("ledger"), "sources", "source", 1)+split)
	d.AwaitStatus("the target is refused", func(s configstore.Status) bool {
		return len(s.Refused) > 0 && strings.Contains(s.Refused[0].Err.Error(), `spec.source: unknown field; did you mean "sources"?`)
	})
	if got := d.calls(); !strings.HasSuffix(got, " orders1") {
		t.Errorf("with mistakes checkout calls %s", got)
	}
	d.write("smi.yaml", target("ledger"))
	d.awaitCalls("TrafficTarget shop/a (smi.yaml:1) ledger0")

	// A written object comes first, and nothing but Watch has the derived one.
	d.write("mine.yaml", apitest.Selection("  - app: cart\n"))
	d.awaitCalls(" cart0")
	d.AwaitStatus("the document is outranked", func(s configstore.Status) bool {
		return len(s.Refused) == 1 && strings.Contains(s.Refused[0].Err.Error(), "a written AppEndpoints shop/checkout stands")
	})
	d.must(os.Remove(d.file("mine.yaml")))
	d.awaitCalls("TrafficTarget shop/a (smi.yaml:1) ledger0")
	if _, err := d.store.Get(t.Context(), checkout); !errors.Is(err, configstore.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if all, refused, err := d.store.List(t.Context()); len(all) != 1 || len(refused) > 0 || err != nil {
		t.Errorf("list: %v, %v, %v", all, refused, err)
	}
	d.must(os.Remove(d.file("smi.yaml")))
	d.awaitCalls("gone")
}

// TestADocumentIsNotWrittenOver: a file with a document is no file of one object.
func TestADocumentIsNotWrittenOver(t *testing.T) {
	d := begin(t, "both.yaml", apitest.Selection("  - app: cart\n")+"---\n"+target("orders"))
	_, err := d.store.Write(t.Context(), configstore.Write{Delete: checkout})
	if !errors.Is(err, configstore.ErrReadOnly) {
		t.Errorf("delete: %v", err)
	}
}
