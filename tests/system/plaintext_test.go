package system

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// pair starts a caller in west and two apps in east that it may call, their sidecars
// with these arguments of daprd.
func (m *mesh) pair(t *testing.T, args ...string) *sandbox.Sidecar {
	m.apply(t, m.east, export("shop", "orders", "west"), export("shop", "payments", "west"))
	m.apply(t, m.west, selection("shop", "checkout", "app: orders", "app: payments"))
	for _, id := range []string{"orders", "payments"} {
		m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: id}, Args: args})
	}
	return m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: "checkout"}, Args: args})
}

// daprd without mTLS, as "dapr run" starts it, sends no name in TLS.
func TestAGatewayThatIsCalledWithoutMTLSSaysWhatToSwitchOn(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	checkout := m.pair(t, "--enable-mtls=false")
	m.leadsTo(t, m.west, "shop/checkout", "orders", "east")

	_, err := checkout.Invoke(meshtest.Within(t, callTimeout), "orders", "hello", untraced)
	if err == nil {
		t.Fatal("a call without mTLS went through a gateway that takes none")
	}
	t.Log(err)
	const advice = "switch mTLS on in its Configuration (spec.mtls.enabled) or, for development only, set plaintext: true for this gateway"
	meshtest.Eventually(t, meshtest.Patience, func() error { // the caller may be told first
		if log := m.east.Tail(100); !strings.Contains(log, advice) || !strings.Contains(log, "reason=plaintext") {
			return fmt.Errorf("the log of east's service does not say %q:\n%s", advice, log)
		}
		if n := value(m.page(t, m.east.Admin, "/metrics"), `isthmus_gateway_refusals_total{reason="plaintext"}`); n == "" {
			return errors.New("isthmus_gateway_refusals_total does not count the refusal")
		}
		return nil
	})
}

func TestInsecureIsSaidAtEveryStart(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{plain: true})
	s := m.app(t, m.west, "shop", "orders")
	for who, p := range map[string]*sandbox.Process{"the service": m.west.Process, "the sidecar": s.Process} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if log := p.Tail(100); !strings.Contains(log, "insecure") {
				return fmt.Errorf("%s starts in plain text without a warning:\n%s", who, log)
			}
			return nil
		})
	}
}

func TestWithPlaintextAGatewayTellsAppsApartByTheirNames(t *testing.T) {
	t.Parallel()
	plaintext := map[string]any{"gateway": map[string]any{"plaintext": true}}
	m := ownMesh(t, meshOptions{westSettings: plaintext, eastSettings: plaintext})
	from := m.pair(t, "--enable-mtls=false")
	answers(t, from, "orders", "east")
	answers(t, from, "payments", "east")
	for i := range 400 {
		id := []string{"orders", "payments"}[i%2]
		reply, err := from.Invoke(meshtest.Within(t, meshtest.Patience), id, "hello", untraced)
		if err != nil {
			t.Fatal(err)
		}
		if reply.App != id || reply.Cluster != "east" {
			t.Fatalf("a call of %s was answered by %s in %s", id, reply.App, reply.Cluster)
		}
	}
}

// value is that of a metric on a page of metrics, empty if there is none.
func value(page, name string) string {
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// page is what a service's admin server shows.
func (m *mesh) page(t *testing.T, admin, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true // one question, and no connection left behind
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
