package operators

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

const export = `apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: shop, name: orders}
spec: {allow: [{cluster: east}]}
`

// TestRBACDecidesWhoMayAskWhat, for users by token and by certificate, and the log names them.
func TestRBACDecidesWhoMayAskWhat(t *testing.T) {
	c := start(t, "isthmus-0", nil)
	file := filepath.Join(c.dir, "export.yaml")
	if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
		t.Fatal(err)
	}
	ann, bob, carl, dora := c.kubeconfig("ann", ""), c.kubeconfig("bob", ""), c.kubeconfig("carl", ""), c.kubeconfig("dora", "")
	both, unknown := c.kubeconfig("ann", serverstest.TokenOf("bob")), c.kubeconfig("eve", "")
	apply, explain := []string{"apply", "-f", file}, []string{"explain", "--from", "shop/checkout", "orders"}
	for _, test := range []struct {
		what, kubeconfig string
		args             []string
		code             int
		says             string
	}{
		{"a reader, by certificate", ann, []string{"status"}, 0, "cluster     west"},
		{"a reader explains", ann, explain, 1, "shop/orders"},
		{"a reader tries a change", ann, append(apply, "--dry-run"), 0, "created"},
		{"a reader writes", ann, apply, 1, `user "ann" may not write in cluster west`},
		{"by certificate rather than by token", both, apply, 1, `user "ann" may not write in cluster west`},
		{"who may only connect", carl, []string{"status"}, 1, `user "carl" may not read in cluster west: Kubernetes' RBAC allows no read on resolvers.isthmus.dev "west"; bind the ClusterRole isthmus-operator-read`},
		{"who may not even connect", dora, []string{"status"}, 1, "bind the ClusterRole isthmus-operator-connect"},
		{"whom Kubernetes does not know", unknown, []string{"status"}, 1, "401 Unauthorized"},
		{"a writer, by token", bob, apply, 0, "created"},
		{"a reader reads that", ann, []string{"get", "appexport"}, 0, "orders"},
		{"a writer deletes", bob, []string{"delete", "appexport", "shop/orders"}, 0, "deleted"},
		{"the cluster is another one", ann, []string{"status", "--cluster", "east"}, 1, "is of cluster west, and --cluster wants east"},
		{"in a namespace without rights", ann, []string{"status", "--isthmus-namespace", "elsewhere"}, 1, "isthmus-operator-connect"},
	} {
		out, code := c.run("isthmus", test.kubeconfig, append(test.args, "--context", "sandbox")...)
		if code != test.code || !strings.Contains(out, test.says) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", test.what, code, test.code, test.says, out)
		}
	}
	lines := c.log()
	for _, want := range []string{`msg="objects written" cluster=west objects=1 by=bob`, `msg="refused a call" cluster=west listener=kubernetes`, "caller=carl", "caller=ann"} {
		if !strings.Contains(lines, want) {
			t.Errorf("the log does not have %q:\n%s", want, lines)
		}
	}
	for _, secret := range shared.Tokens() {
		if strings.Contains(lines, secret) {
			t.Errorf("the log has a token:\n%s", lines)
		}
	}
	if out, code := c.run("isthmus", ann, "events", "--context", "sandbox"); code != 0 || !strings.Contains(out, "bob") {
		t.Errorf("events: %d\n%s", code, out)
	}
}

// TestAPluginOfKubectl asks the service of kubectl's context, and is called as its users do.
func TestAPluginOfKubectl(t *testing.T) {
	c := start(t, "isthmus-1", nil)
	ann := c.kubeconfig("ann", "")
	kubectl := func(args ...string) (string, int) {
		t.Helper()
		return c.run("kubectl", ann, args...)
	}
	if out, code := kubectl("isthmus", "status"); code != 0 || !strings.Contains(out, "cluster     west") {
		t.Errorf("kubectl isthmus status: %d\n%s", code, out)
	}
	if out, code := kubectl("isthmus", "status", "--context", "other"); code != 2 || !strings.Contains(out, `"other" is not in `+ann) {
		t.Errorf("another context: %d\n%s", code, out)
	}
	if out, code := kubectl("isthmus", "status", "--server", c.service.Resolver, "--insecure"); code != 0 || !strings.Contains(out, "cluster     west") {
		t.Errorf("a service that is named: %d\n%s", code, out)
	}
	out, _ := kubectl("isthmus", "explain", "--help")
	if !strings.Contains(out, "  kubectl isthmus explain --from") || !strings.Contains(out, "Usage:\n  kubectl isthmus explain") {
		t.Errorf("help:\n%s", out)
	}
	if _, code := kubectl("isthmus", "explain", "--from", "shop/checkout", "orders"); code != 1 {
		t.Errorf("the exit code of a refusal is %d", code)
	}
}

// TestASavedContextLeadsThroughKubernetes by its keys, and flags win over it.
func TestASavedContextLeadsThroughKubernetes(t *testing.T) {
	c := start(t, "isthmus-2", nil)
	ann := c.kubeconfig("ann", "")
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"context", "set", "here", "--kubeconfig", ann, "--cluster", "west"}, 0, "created"},
		{[]string{"context", "set", "wrong", "--kube-context", "sandbox", "--isthmus-namespace", "elsewhere"}, 0, "created"},
		{[]string{"context", "set", "wrong", "--insecure"}, 2, "exclude each other"},
		{[]string{"context", "list"}, 0, "kubernetes"},
		{[]string{"status", "--context", "here"}, 0, "cluster     west"},
		{[]string{"status", "--context", "here", "--cluster", "east"}, 1, "--cluster wants east"},
		{[]string{"status", "--context", "wrong"}, 1, "elsewhere"},
		{[]string{"status", "--context", "wrong", "--isthmus-namespace", "isthmus-system"}, 0, "cluster     west"},
		{[]string{"status", "--context", "here", "--server", c.service.Resolver, "--insecure"}, 0, "cluster     west"},
		{[]string{"context", "use", "here"}, 0, "current"},
		{[]string{"status"}, 0, "cluster     west"},
		{[]string{"status", "--context", "none"}, 2, "your kubeconfig has none of that name either"},
		{[]string{"status", "--kubeconfig", ann, "--insecure"}, 2, "exclude each other"},
		{[]string{"status", "--kubeconfig", filepath.Join(c.dir, "none")}, 1, "no such file"},
	} {
		if out, code := c.run("isthmus", ann, test.args...); code != test.code || !strings.Contains(out, test.says) {
			t.Errorf("isthmus %s: exit code %d, want %d and %q:\n%s", strings.Join(test.args, " "), code, test.code, test.says, out)
		}
	}
}

// TestWhileTheAPIServerIsAwayNobodyIsLetIn, and the error says why.
func TestWhileTheAPIServerIsAwayNobodyIsLetIn(t *testing.T) {
	c := start(t, "isthmus-3", nil)
	ann, bob := c.kubeconfig("ann", ""), c.kubeconfig("bob", "")
	status := []string{"status", "--context", "sandbox"}
	if out, code := c.run("isthmus", ann, status...); code != 0 { // the roots of certificates are known, and ann's right for a while
		t.Fatalf("%d\n%s", code, out)
	}
	mend := c.link.Fail(t)
	for user, kubeconfig := range map[string]string{"by token": bob, "by certificate": ann} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			out, code := c.run("isthmus", kubeconfig, status...)
			if code != 1 || !strings.Contains(out, "Kubernetes' API server does not say who calls and what they may do, so nobody is let in") {
				return fmt.Errorf("%s: %d\n%s", user, code, out)
			}
			return nil
		})
	}
	mend()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if out, code := c.run("isthmus", bob, status...); code != 0 {
			return fmt.Errorf("after it is back: %d\n%s", code, out)
		}
		return nil
	})
}

// TestAProxyWithoutWebsocketsIsPassed by SPDY, as kubectl does.
func TestAProxyWithoutWebsocketsIsPassed(t *testing.T) {
	c := start(t, "isthmus-6", nil)
	transport, err := shared.API.Transport()
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(shared.API.URL())
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int32
	pass := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, ErrorLog: log.New(io.Discard, "", 0)}
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			refused.Add(1)
			http.Error(w, "no websockets here", http.StatusBadRequest)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	ca, kubeconfig := filepath.Join(c.dir, "proxy.pem"), filepath.Join(c.dir, "proxy.kubeconfig")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, text, 0o600), servers.Kubeconfig(kubeconfig, proxy.Listener.Addr().String(), ca, serverstest.TokenOf("bob"))); err != nil {
		t.Fatal(err)
	}
	if out, code := c.run("isthmus", kubeconfig, "status", "--context", "sandbox"); code != 0 || refused.Load() == 0 {
		t.Errorf("exit code %d, %d websockets refused:\n%s", code, refused.Load(), out)
	}
}

// TestAnInvitationNamesTheLoadBalancer that Kubernetes has for the gateway, where no address is given.
func TestAnInvitationNamesTheLoadBalancer(t *testing.T) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, "isthmus-7", authority)
	ann, bob := c.kubeconfig("ann", ""), c.kubeconfig("bob", "")
	invite := []string{"link", "invite", "east", "--context", "sandbox"}
	says := func(who string, code int, want string) {
		t.Helper()
		if out, got := c.run("isthmus", who, invite...); got != code || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want %d and %q:\n%s", got, code, want, out)
		}
	}
	says(ann, 1, `user "ann" may not link in cluster west`)
	says(bob, 1, "(no-gateway)")
	service := `{apiVersion: v1, kind: Service, metadata: {name: isthmus-gateway, namespace: isthmus-system}, spec: {type: LoadBalancer, ports: [{name: gateway, port: 15443}]}}`
	if _, err := shared.Run(service, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	says(bob, 1, "(no-gateway)") // it has no address yet
	status := `{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7"},{"hostname":"gw.west.example"}]}}}`
	if err := shared.Kubectl("patch", "service", "-n", "isthmus-system", "isthmus-gateway", "--subresource=status", "-p", status); err != nil {
		t.Fatal(err)
	}
	says(bob, 0, "at 203.0.113.7:15443, gw.west.example:15443, as its Service has it\nisthmus-link-1.")
}
