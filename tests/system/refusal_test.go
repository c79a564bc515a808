package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// refusalOf waits until both of a sidecar's APIs refuse a call with these words, and returns
// what its app is told: status and body over HTTP, status over gRPC. A sidecar may have no
// view yet, or one that is older than that of the service. A call that goes through fails
// the test at once.
func refusalOf(t *testing.T, s *sandbox.Sidecar, conn *grpc.ClientConn, id, words string) (http, rpc string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := s.Invoke(meshtest.Within(t, meshtest.Patience), id, "hello", untraced)
		var refused *sandbox.InvokeError
		if !errors.As(err, &refused) {
			t.Fatalf("%s calls %s: %v, want an error of daprd", s.App, id, err)
		}
		_, err = sandbox.Proxy(meshtest.Within(t, meshtest.Patience), conn, id, nil)
		answer, ok := status.FromError(err)
		if err == nil || !ok {
			t.Fatalf("%s calls %s over gRPC: %v, want a status", s.App, id, err)
		}
		http, rpc = fmt.Sprint(refused.Status, " ", refused.Body), answer.Code().String()+" "+answer.Message()
		if !strings.Contains(http, words) || !strings.Contains(rpc, words) {
			return fmt.Errorf("%s calls %s, and is told %s over HTTP and %s over gRPC, want %q in both", s.App, id, http, rpc, words)
		}
		return nil
	})
	return http, rpc
}

func TestACallerGetsNoHintOfWhatItsSelectionDoesNotHold(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	m.app(t, m.west, "hint", "secret-local")
	m.app(t, m.east, "hint", "secret-remote")
	m.apply(t, m.east, export("hint", "secret-remote", "west"))
	m.apply(t, m.west, selection("hint", "partner", "app: secret-local", "app: secret-remote"), selection("hint", "checkout", "app: orders"))
	m.leadsTo(t, m.west, "hint/partner", "secret-local", "west")
	m.leadsTo(t, m.west, "hint/partner", "secret-remote", "east")

	s := m.app(t, m.west, "hint", "checkout")
	conn := dial(t, s)
	for _, namespace := range []string{"", ".hint", ".other"} {
		nothing := m.refusalWithoutNames(t, s, conn, "no-such-thing", namespace)
		for _, id := range []string{"secret-local", "secret-remote"} {
			if got := m.refusalWithoutNames(t, s, conn, id, namespace); got != nothing {
				t.Errorf("the refusal of %s%s differs from that of an app that does not exist:\n got %s\nwant %s", id, namespace, got, nothing)
			}
		}
	}
}

// refusalWithoutNames is what a caller is told by both APIs, but for the app-id.
func (m *mesh) refusalWithoutNames(t *testing.T, s *sandbox.Sidecar, conn *grpc.ClientConn, id, namespace string) string {
	t.Helper()
	http, rpc := refusalOf(t, s, conn, id+namespace, "denied: the caller's selection does not hold ")
	told := http + " | " + rpc
	others := strings.ReplaceAll(told, "add it to AppEndpoints "+s.App.String(), "") // the caller's own object
	for _, hint := range []string{"127.0.0.1", "east", "isthmus.internal", "AppEndpoints", "partner"} {
		if strings.Contains(others, hint) {
			t.Errorf("the refusal of %s%s tells of %q: %s", id, namespace, hint, told)
		}
	}
	return strings.ReplaceAll(told, id, "APP-ID")
}

// lookup is one that is refused, and how.
type lookup struct {
	outcome        catalog.Outcome
	caller, callee string
}

func TestARefusalReadsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.app(t, m.east, "shop", "invoices")
	m.apply(t, m.east, export("shop", "invoices", "west"))
	m.apply(t, m.west,
		selection("shop", "checkout", "app: orders", "app: invoices", "app: elsewhere, routes: [{cluster: east}, {cluster: south}]"))
	sidecars := map[string]*sandbox.Sidecar{"checkout": m.app(t, m.west, "shop", "checkout"), "open": m.app(t, m.west, "shop", "open")}
	answers(t, sidecars["checkout"], "invoices", "east")
	if err := m.east.Kill(); err != nil { // and its gateway, so that the lease ends at once
		t.Fatal(err)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		d, err := m.explain(t, m.west, "shop/checkout", "invoices")
		if err == nil && d.Outcome != "stale" {
			err = fmt.Errorf("the lease has not run out: %+v", d)
		}
		return err
	})
	for _, l := range []lookup{
		{catalog.Denied, "checkout", "payments"},
		{catalog.NotFound, "open", "nowhere"},
		{catalog.Unavailable, "checkout", "orders"},
		{catalog.Unavailable, "checkout", "elsewhere"},
		{catalog.Stale, "checkout", "invoices"},
	} {
		t.Run(fmt.Sprint(l.outcome, " ", l.callee), func(t *testing.T) { m.readsTheSame(t, sidecars[l.caller], l) })
	}
	t.Run("not ready", func(t *testing.T) {
		if err := m.west.Kill(); err != nil {
			t.Fatal(err)
		}
		s := m.app(t, m.west, "shop", "late")
		refusalOf(t, s, dial(t, s), "orders", "not ready: shop/late can't look up shop/orders yet: it waited 2s for its view from resolver service "+m.west.Resolver+": ")
	})
}

// readsTheSame holds the refusal of one lookup together wherever it can be read.
func (m *mesh) readsTheSame(t *testing.T, s *sandbox.Sidecar, l lookup) {
	caller := "shop/" + l.caller
	out, _, _ := m.isthmus(t, m.west, "", "explain", "--from", caller, l.callee, "-o", "json")
	var d decision
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if d.Outcome != l.outcome.String() || d.Reason == "" || d.Address != "" || d.Cluster != "" || d.Gateway != "" {
		t.Fatalf("isthmus explain: %+v, want %s, a reason and no address", d, l.outcome)
	}
	text := d.Outcome + ": " + d.Reason
	t.Log(text)

	answer, err := v1alpha1.NewResolverClient(m.operator(t)).Resolve(meshtest.Within(t, meshtest.Patience), &v1alpha1.ResolveRequest{
		Caller: &v1alpha1.App{Namespace: "shop", Id: l.caller}, App: &v1alpha1.App{Namespace: "shop", Id: l.callee},
	})
	if err != nil || answer.GetOutcome()+": "+answer.GetReason() != text {
		t.Errorf("gRPC: %v, %v, want %q", answer, err, text)
	}
	_, complaint, err := m.isthmus(t, m.west, "", "resolve", "--from", caller, l.callee)
	if err == nil || !strings.Contains(complaint, text) {
		t.Errorf("isthmus resolve: %v, %q, want %q in it", err, complaint, text)
	}
	table, _, _ := m.isthmus(t, m.west, "", "explain", "--from", caller, l.callee)
	if !strings.Contains(table, d.Outcome) || !strings.Contains(table, d.Reason) {
		t.Errorf("isthmus explain as a table: %q, want outcome and reason in it", table)
	}
	refusalOf(t, s, dial(t, s), l.callee, text)
}
