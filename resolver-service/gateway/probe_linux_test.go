package gateway

import (
	"testing"
	"time"
)

// Sidecars find out whether a gateway is there by connections on which nothing is sent and
// which they reset. The kernel sees to those: none is accepted, counted or logged.
func TestAProbeLeavesNoTrace(t *testing.T) {
	gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}))
	if _, _, err := call(t, gw.addr, ordersHost); err != nil { // the gateway has prepared its socket by now
		t.Fatal(err)
	}
	before := gw.metric("isthmus_gateway_connections_accepted_total")
	for range 50 {
		reset(dialTCP(t, gw.addr))
	}
	time.Sleep(2 * deferAccept * time.Second) // what the kernel kept to itself it hands out by then
	if got := gw.metric("isthmus_gateway_connections_accepted_total"); got != before {
		t.Errorf("%v of 50 probes were accepted, want none", got-before)
	}
	if log := gw.log.String(); log != "" {
		t.Errorf("probes are in the log:\n%s", log)
	}
}
