package main

import (
	"testing"

	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
)

// What waits in the kernel holds a processor: a loop of the gateway, and a socket of DNS for
// each core. One more than those is left for everything else.
func TestAProcessorIsLeftBesideWhatWaitsInTheKernel(t *testing.T) {
	const cores = 4
	at := []dns.Endpoint{{Address: "127.0.0.1:53"}}
	for name, test := range map[string]struct {
		listen resolverservice.Listen
		want   int
	}{
		"neither": {resolverservice.Listen{}, cores},
		"gateway": {resolverservice.Listen{Gateway: "127.0.0.1:15443"}, cores + gateway.Loops()},
		"DNS":     {resolverservice.Listen{DNS: at}, cores + 1},
		"both":    {resolverservice.Listen{Gateway: "127.0.0.1:15443", DNS: at}, cores + gateway.Loops() + 1},
	} {
		if n := processors(&resolverservice.Config{Cores: cores, Listen: test.listen}); n != test.want {
			t.Errorf("%s: %d processors, want %d", name, n, test.want)
		}
	}
}
