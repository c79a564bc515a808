package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/snapshot"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestDaprsOwnChartIsKnown holds that isthmus check knows what Dapr's chart makes. Nothing runs it here,
// so what is not ready is all that is wrong.
func TestDaprsOwnChartIsKnown(t *testing.T) {
	need(t)
	manifests, err := helm(t, "template", "dapr", serverstest.DaprChart(t, "../.."), "-n", "dapr-system", "--kube-version", kubernetes,
		"--set", "global.tag=1.18.2,dapr_sidecar_injector.sidecarDropALLCapabilities=false")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := shared.Run(manifests, "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if _, err := shared.Run(manifests, "delete", "--wait=false", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	server, err := apiserver.New(apiserver.Config{Kubeconfig: shared.AdminConfig()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	s, err := snapshot.Read(t.Context(), server, "isthmus-system")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Unread) > 0 || s.DaprNamespace() != "dapr-system" {
		t.Errorf("Dapr is in %q; not read: %v", s.DaprNamespace(), s.Unread)
	}
	found := map[string]bool{}
	for _, r := range check.OfCluster(&check.Cluster{Snapshot: s, Namespace: "isthmus-system"}, true) {
		if r.Level != check.OK {
			found[fmt.Sprint(r.Check, " ", r.Name)] = true
			if !strings.Contains(r.Found, "no pod of it is ready") && r.Check == "dapr" {
				t.Errorf("%+v", r)
			}
		}
	}
	for _, want := range []string{"dapr dapr-system/dapr-operator", "dapr dapr-system/dapr-sentry", "dapr dapr-system/dapr-sidecar-injector", "pod-security mesh"} {
		if !found[want] {
			t.Errorf("%s is not among %v", want, found)
		}
	}
	if found["dapr-mtls dapr-system/daprsystem"] {
		t.Error("mTLS is off in Dapr's chart")
	}
}
