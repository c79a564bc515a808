package callhealth

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// TestFaultsOfReplicasAddUp has one fault that two replicas know of, and one that another alone does.
func TestFaultsOfReplicasAddUp(t *testing.T) {
	now := time.Unix(10_000, 0)
	fault := func(level, callee string, calls, of uint64, ago time.Duration) *v1alpha1.CallFault {
		return &v1alpha1.CallFault{
			Check: CallsFailed, Level: level, Caller: wire.App(catalog.App{Namespace: "shop", ID: "checkout"}), Callee: wire.App(catalog.App{Namespace: "shop", ID: callee}), Cluster: "east",
			Outcome: "Internal", Calls: calls, Of: of, SinceUnixMs: now.Add(-ago).UnixMilli(), LastUnixMs: now.UnixMilli(),
		}
	}
	h := New(Config{})
	h.looked = []*v1alpha1.CallFault{fault(warn, "orders", 3, 100, time.Minute)}
	h.SetOthers([]*v1alpha1.CallFault{fault(warn, "stock", 1, 1, 0), fault(Fail, "orders", 2, 4, time.Hour)})
	all := h.Faults(now)
	if len(all) != 2 || all[0].GetCallee().GetId() != "orders" || all[1].GetCallee().GetId() != "stock" {
		t.Fatalf("%v", all)
	}
	f := all[0]
	if f.GetLevel() != Fail || f.GetCalls() != 5 || f.GetOf() != 104 || f.GetSinceUnixMs() != now.Add(-time.Hour).UnixMilli() || !strings.HasPrefix(f.GetWhat(), "5 of 104 calls to cluster east failed in the last minute, for 1h0m0s") {
		t.Errorf("%v", f)
	}
	if own := h.Own(now); len(own) != 1 || own[0].GetCalls() != 3 {
		t.Errorf("the sum has changed what this replica knows: %v", own)
	}
}
