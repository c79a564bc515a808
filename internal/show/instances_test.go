package show

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func vm() *catalog.AppInstance {
	return &catalog.AppInstance{
		Namespace: "shop", Name: "orders-vm1", App: "orders", Address: netip.MustParseAddrPort("10.0.0.5:50002"), Zone: "rack 12",
		Check: &catalog.HealthCheck{Kind: catalog.CheckHTTP, Port: 3500, Path: "/v1.0/healthz", Interval: 2 * time.Second, Timeout: time.Second, HealthyAfter: 1, UnhealthyAfter: 2},
	}
}

func TestInstancesAreATableOfTheirOwn(t *testing.T) {
	plain := vm()
	plain.Name, plain.Zone, plain.Check = "orders-vm2", "", nil
	var b strings.Builder
	err := Objects(&b, Table, []Object{{vm(), "12", "vms.yaml:3", ""}, {plain, "13", "", ""}}, false)
	want := `APPINSTANCE       APP      ADDRESS          ZONE      CHECK                               REVISION   SOURCE
shop/orders-vm1   orders   10.0.0.5:50002   rack 12   http :3500/v1.0/healthz every 2s    12         vms.yaml:3
shop/orders-vm2   orders   10.0.0.5:50002   -         none                                13
`
	if strings.Join(strings.Fields(b.String()), " ") != strings.Join(strings.Fields(want), " ") || err != nil {
		t.Errorf("got\n%s(%v)\nwant\n%s", b.String(), err, want)
	}
}

// TestADryRunSaysNothingOfInstancesThatItDoesNotKnow: what becomes of lookups depends on
// what is found at the address.
func TestADryRunSaysNothingOfInstancesThatItDoesNotKnow(t *testing.T) {
	for result, want := range map[string]string{
		"created":   "another way; what the instances change is known once they are there and checked\n",
		"deleted":   "another way; what the instances change is known",
		"unchanged": "no lookup in this cluster would end in another way\n",
	} {
		var b strings.Builder
		answer := &v1alpha1.ApplyResponse{Results: []*v1alpha1.ApplyResult{{Key: &v1alpha1.ObjectKey{Kind: "AppInstance", Namespace: "shop", Name: "orders-vm1"}, Result: result}}}
		if err := Apply(&b, dryRun(answer)); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s: got\n%s(%v)\nwant %q", result, b.String(), err, want)
		}
		answer.Effects = []*v1alpha1.Effect{{App: &v1alpha1.App{Namespace: "shop", Id: "orders"}, Before: &v1alpha1.Decision{Outcome: "ok"}, After: &v1alpha1.Decision{Outcome: "denied"}}}
		b.Reset()
		if err := Apply(&b, dryRun(answer)); err != nil || strings.Contains(b.String(), "what the instances change is known") != (result != "unchanged") {
			t.Errorf("%s: got\n%s(%v)", result, b.String(), err)
		}
	}
}
