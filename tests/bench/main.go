// Command bench measures Isthmus, beside others where there are any: what the pages of
// docs/reference/figures show. Everything is on loopback and bounded, and what this machine lacks
// is left out and named. CPU time is the scheduler's count, so most of it is for Linux only.
package main

import (
	"github.com/isthmus-mesh/isthmus/tests/bench/calls"
	"github.com/isthmus-mesh/isthmus/tests/bench/console"
	"github.com/isthmus-mesh/isthmus/tests/bench/dns"
	"github.com/isthmus-mesh/isthmus/tests/bench/fanout"
	"github.com/isthmus-mesh/isthmus/tests/bench/gateway"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/bench/peers"
	"github.com/isthmus-mesh/isthmus/tests/bench/xds"
)

func main() {
	harness.Main(map[string]harness.Benchmark{
		"actors": calls.Actors, "call": calls.Sidecar, "console": console.New, "dns": dns.New, "fanout": fanout.New, "gateway": gateway.New, "peers": peers.New, "xds": xds.New,
	})
}
