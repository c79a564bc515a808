package show

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

func TestAStatusShowsClientsOfXDS(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	minutes := func(n int) int64 { return now.Add(time.Duration(-n) * time.Minute).UnixMilli() }
	var b strings.Builder
	err := Status(&b, &v1alpha1.StatusResponse{Cluster: "west", Store: &v1alpha1.StoreStatus{Name: "embedded", Ready: true}, Xds: []*v1alpha1.XDSClient{
		{
			App: &v1alpha1.App{Namespace: "mesh", Id: "ingress"}, Node: "mesh/ingress/pod-7", Program: "envoy 1.31.0", Delta: true, Gateway: true, SinceUnixMs: minutes(9),
			Rejections: []*v1alpha1.XDSRejection{{Type: "LDS", Error: "no such filter", Revision: 12, SinceUnixMs: minutes(3)}},
		},
		{App: &v1alpha1.App{Namespace: "shop", Id: "checkout"}, Node: "shop/checkout", Program: "gRPC Go 1.77.0", SinceUnixMs: minutes(2)},
	}, XdsCounts: &v1alpha1.XDSCounts{Clients: 7, Gateways: 1, Refusing: 3}}, true, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"UNHEALTHY", "\n  xds client mesh/ingress (pod-7): refuses LDS of revision 12 for 3m0s: no such filter\n",
		"xds         7 clients, of which 1 gateway\n",
		"xds client: 2 more refuse what they were sent\n", "\n5 more clients of xDS\n",
		"\nmesh/ingress (pod-7)   gateway   envoy 1.31.0     delta                9m0s    LDS\n",
		"\nshop/checkout          app       gRPC Go 1.77.0   state of the world   2m0s\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
