package show

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

func TestAStatusShowsHowDNSIsAnswered(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	var b strings.Builder
	err := Status(&b, &v1alpha1.StatusResponse{Cluster: "west", Store: &v1alpha1.StoreStatus{Name: "embedded"}, Dns: &v1alpha1.DNSStatus{
		Listeners: []*v1alpha1.DNSListener{
			{Address: "127.0.0.1:7453", Protocols: []string{"udp", "tcp"}},
			{Address: "127.0.0.2:53", Protocols: []string{"udp", "tcp"}, As: "shop/checkout"},
			{Address: "[::]:853", Protocols: []string{"tls"}},
		},
		Upstreams: []*v1alpha1.DNSUpstream{
			{Address: "10.96.0.10:53", Up: true},
			{Address: "1.1.1.1:53", Error: "timeout", FailingUnixMs: ago(12 * time.Second)},
		},
		Hosts: []*v1alpha1.DNSHost{
			{Name: "gw.east.example", Addresses: []string{"192.0.2.1"}},
			{Name: "gw.north.example", Addresses: []string{"192.0.2.2"}, Error: "server misbehaving", FailingUnixMs: ago(time.Minute)},
			{Name: "gw.south.example", Error: "no such host", FailingUnixMs: ago(time.Minute)},
		},
		ByServerName: 7, OtherPort: 2,
	}}, false, now)
	for _, want := range []string{
		"dns         127.0.0.1:7453, 127.0.0.2:53 as shop/checkout, [::]:853 by TLS\n",
		"forward     10.96.0.10:53, 1.1.1.1:53 (away for 12s)\n",
		"\n  dns upstream 1.1.1.1:53: does not answer for 12s: timeout\n",
		"\ndns: gateway gw.north.example not resolved for 1m0s: server misbehaving; answering with 192.0.2.2\n",
		"\ndns: 7 answers to names of Dapr's services led to gateways that take who sends a server name alone",
		"\ndns: 2 answers to names of Dapr's services led to gateways of an app on another port than the caller's",
		"\ndns: gateway gw.south.example not resolved for 1m0s: no such host; its clusters' gateway names have no address by it\n",
	} {
		if !strings.Contains(b.String(), want) || err != nil {
			t.Errorf("no %q in\n%s(%v)", want, b.String(), err)
		}
	}
	if strings.Contains(b.String(), "gw.east") {
		t.Errorf("a gateway that is resolved is told of:\n%s", b.String())
	}
}
