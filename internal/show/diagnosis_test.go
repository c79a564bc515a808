package show

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

func TestFaultsComeFirstAndFit80Columns(t *testing.T) {
	all := []*v1alpha1.CheckResult{
		{
			Check: "gateway-port", Level: "fail", Kind: "gateway", Name: "north \x1b[31m203.0.113.7:15443", Found: "the port is closed: connection refused",
			Fix: "start the gateway there, or correct spec.gateways of its Cluster object; " + strings.Repeat("x", 90) + " y",
		},
		{Check: "peer-one-way", Level: "warn", Kind: "peer", Name: "east", Found: "one-way: it does not hear this cluster; its link is stale", Fix: "run isthmus check there"},
		{Check: "store", Level: "ok", Kind: "service", Name: "west"},
	}
	d := Diagnosed(&v1alpha1.CheckResponse{Cluster: "west", Results: all})
	const faults = `cluster west: 1 failed, 1 warning, 1 ok

FAIL  gateway-port  gateway north ?[31m203.0.113.7:15443
      the port is closed: connection refused
      fix: start the gateway there, or correct spec.gateways of its Cluster
      object;
      xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
      y
      see: docs/reference/checks.md#gateway-port

WARN  peer-one-way  peer east
      one-way: it does not hear this cluster; its link is stale
      fix: run isthmus check there
      see: docs/reference/checks.md#peer-one-way
`
	for listed, want := range map[bool]string{false: faults + "\n--all lists those that are ok, too\n", true: faults + "\nok    store  service west\n"} {
		var b strings.Builder
		if err := Diagnose(&b, d, listed); err != nil || b.String() != want {
			t.Errorf("--all=%t: %v\n%s\nwant\n%s", listed, err, b.String(), want)
		}
	}
	if got := d.Results[0]; got.Link != "https://github.com/isthmus-mesh/isthmus/blob/main/docs/reference/checks.md#gateway-port" || got.Level != "fail" || d.Fail != 1 || d.Warn != 1 || d.Ok != 1 {
		t.Errorf("as data %+v", d)
	}
}
