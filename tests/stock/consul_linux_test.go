package stock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// throughConsul is Dapr's component, which registers its sidecar, on the agent of the
// cluster.
func (c *cluster) throughConsul(id string) resolution {
	return resolution{
		component: "hashicorp.consul",
		configuration: fmt.Sprintf(`{client: {address: "%s", token: "%s"}, selfRegister: true, selfDeregister: true,
      checks: [{name: Dapr, interval: 1s, http: "http://%s:${DAPR_HTTP_PORT}/v1.0/healthz"}]}`, c.consul(), tokenOf(id), "${DAPR_HOST_IP}"),
		args: []string{"--dapr-listen-addresses", "0.0.0.0"}, // the check comes from outside
	}
}

// consul is where the cluster has Consul's HTTP API.
func (c *cluster) consul() netip.AddrPort { return netip.AddrPortFrom(c.address(1), 8500) }

// tokenOf is the ACL token of an app, which tells Isthmus who asks.
func tokenOf(id string) string { return "token-of-" + id }

// TestConsul has the same sidecars find each other by a Consul agent, to which somebody
// has told the way to the app in the other cluster, and by Isthmus.
func TestConsul(t *testing.T) {
	t.Run("an agent of Consul", func(t *testing.T) {
		l := newLab(t, plan{})
		l.west.startConsul(t)
		l.west.register(t, "invoices", "invoices.shop.east.isthmus.internal", port)
		findEachOther(t, l)
	})
	t.Run("Isthmus", func(t *testing.T) {
		l := newLab(t, withConsul(t))
		l.west.apply(t, selection("checkout", "app: orders", "app: invoices"), selection("reporting", "app: invoices"))
		findEachOther(t, l)
		reporting := l.west.pod(t, "reporting", l.west.throughConsul("reporting"))
		reporting.reaches(t, "invoices", l.east)
		reporting.fails(t, "checkout", "no healthy services found with AppID 'checkout'")
	})
}

// withConsul has west serve Consul's API, with a token for each of three apps.
func withConsul(t *testing.T) plan {
	t.Helper()
	return plan{west: site{
		listen:   map[string]any{"consul": "10.77.1.1:8500"},
		settings: map[string]any{"consul": consulTokens(t, "orders", "checkout", "reporting")},
	}}
}

// findEachOther registers, calls here and in the other cluster, and deregisters.
func findEachOther(t *testing.T, l *lab) {
	t.Helper()
	l.east.apply(t, export("invoices", "west"))
	l.east.known(t, "invoices", nameFormat())
	orders := l.west.pod(t, "orders", l.west.throughConsul("orders"))
	checkout := l.west.pod(t, "checkout", l.west.throughConsul("checkout"))
	checkout.reaches(t, "orders", l.west)
	checkout.reaches(t, "invoices", l.east)

	if err := orders.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	checkout.fails(t, "orders", "no healthy services found with AppID 'orders'")
	if err := orders.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	checkout.reaches(t, "orders", l.west)
}

// consulTokens is the "consul" block of isthmus.yaml, with a token for each app.
func consulTokens(t *testing.T, ids ...string) map[string]any {
	t.Helper()
	dir := t.TempDir()
	var tokens []any
	for _, id := range ids {
		file := filepath.Join(dir, id)
		if err := os.WriteFile(file, []byte(tokenOf(id)), 0o600); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, map[string]any{"app": namespace + "/" + id, "token": map[string]any{"file": file}})
	}
	return map[string]any{"tokens": tokens}
}

// startConsul starts a real agent at the cluster's address.
func (c *cluster) startConsul(t *testing.T) {
	t.Helper()
	binary := programstest.Path(t, "consul")
	at := c.consul()
	p, err := sandbox.Start(sandbox.Command{
		Name: "consul", Path: binary, LogDir: c.box.Dir(), Place: c.place, ReadyURL: "http://" + at.String() + "/v1/agent/self",
		Args: []string{
			"agent", "-dev", "-node", c.name, "-bind", at.Addr().String(), "-client", at.Addr().String(),
			"-http-port", strconv.Itoa(int(at.Port())), "-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	if err := p.WaitReady(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
}

// register tells the agent of the cluster where an app is.
func (c *cluster) register(t *testing.T, id, host string, port int) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"Name": id, "Address": host, "Port": port, "Meta": map[string]string{"DAPR_PORT": strconv.Itoa(port)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), meshtest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+c.consul().String()+"/v1/agent/service/register", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: c.place.Dial, DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("Consul answers %s to the registration of %s", res.Status, id)
	}
}
