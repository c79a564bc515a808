package stream_test

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// moves tells a replica that what registers with it has gone to another.
type moves struct{ taken chan func() }

func (m moves) Register(_ catalog.Instance, taken func()) { m.taken <- taken }
func (m moves) Drain(topology.InstanceKey)                {}
func (m moves) Withdraw(topology.InstanceKey)             {}

// A sidecar that is turned away goes to the other replica, and its instance is in the views of the
// first until it is known to be there.
func TestASidecarThatIsTurnedAwayGoesToAnotherReplica(t *testing.T) {
	share := moves{make(chan func(), 1)}
	first := start(t, stream.Config{Share: share}, "127.0.0.1:0")
	second := start(t, stream.Config{}, anAddress(t))
	second.server.TurnAway("this replica does not hear east")
	o := sidecarOf(t, first.address+","+second.address, orders, 50002, nil)
	taken := <-share.taken
	second.server.TurnAway("")
	caller := sidecarOf(t, second.address, checkout, 50001, nil)
	caller.finds(orders, "not found")

	first.server.TurnAway("this replica does not hear east")
	caller.finds(orders, "127.0.0.1:50002")
	o.finds(checkout, "127.0.0.1:50001")
	if n := first.server.Instances(); n != 1 {
		t.Fatalf("the first replica has %d instances before it knows of the move; want 1", n)
	}
	taken()
	for end := time.Now().Add(patience); first.server.Instances() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first replica keeps the instance that has moved")
		}
	}
}
