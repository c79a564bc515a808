package gateway

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// Sidecars find out whether a gateway is there by connections on which nothing is sent and
// which they reset. The kernel sees to those: none is accepted, counted or logged.
func TestAProbeLeavesNoTrace(t *testing.T) {
	gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}))
	if _, _, err := call(t, gw.addr, ordersHost); err != nil { // the gateway has prepared its socket by now
		t.Fatal(err)
	}
	const probes = 50
	before, late := gw.metric("isthmus_gateway_connections_accepted_total"), 0
	for range probes {
		began := time.Now()
		relay.Reset(dialTCP(t, gw.addr))
		if time.Since(began) > deferAccept*time.Second/2 { // a busy machine held it up: no probe any more
			late++
		}
	}
	time.Sleep(2 * deferAccept * time.Second) // what the kernel kept to itself it hands out by then
	if got := int(gw.metric("isthmus_gateway_connections_accepted_total") - before); got > late || late > probes/2 {
		t.Errorf("%d of %d probes were accepted, of which %d took long; want none but of those", got, probes, late)
	}
	if log := gw.log.String(); log != "" && late == 0 {
		t.Errorf("probes are in the log:\n%s", log)
	}
}
