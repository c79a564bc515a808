package dial

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

func TestWhatIsNotReachedIsReported(t *testing.T) {
	gw, other := startGateway(t), startGateway(t)
	w := newTestDialer(t)
	gateways := map[string][]string{"east": {gw.Address}, "north": {other.Address}}
	w.setRoutes(gateways, gatewayRoute("east", 0), gatewayRoute("north", 1))
	conn := w.dial(t)
	if got := mustCall(t, conn); got != gw.Address {
		t.Fatalf("reached %s, want east", got)
	}
	gw.stop()
	callAsDaprd(t, conn)
	east := func(all []nameresolution.Unreached) bool {
		return len(all) == 1 && all[0].Cluster == "east" && all[0].Gateway == "" && all[0].App == catalog.App{} && all[0].Why != ""
	}
	w.waitForReport(t, east)
	// The lease ends, so no call goes there. The report stays until the gateway is reached again.
	lapsed := gatewayRoute("east", 0)
	lapsed.State, lapsed.Addresses = catalog.LeaseExpired, nil
	w.setRoutes(gateways, lapsed, gatewayRoute("north", 1))
	time.Sleep(5 * reportDelay)
	w.waitForReport(t, east)
	startGatewayAt(t, gw.Address)
	w.waitForReport(t, func(all []nameresolution.Unreached) bool { return len(all) == 0 })
}

func TestAnAppThatSaysNothingIsReported(t *testing.T) {
	f, p := &freezer{}, &timedServer{}
	gw := f.proxy(t, startGateway(t, p.register).Address)
	w := newEastDialer(t, gw)
	conn := w.dial(t)
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.freeze()
	ended := startInvoke(t, conn)
	w.waitForReport(t, func(all []nameresolution.Unreached) bool {
		return len(all) == 1 && all[0].Cluster == "east" && all[0].Gateway == gw && all[0].App == orders
	})
	f.thaw()
	if err := <-ended; err != nil {
		t.Errorf("the call ended with %v", err)
	}
	w.waitForReport(t, func(all []nameresolution.Unreached) bool { return len(all) == 0 })
}
