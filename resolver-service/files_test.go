package resolverservice

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/settings/settingstest"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// TestFilesThatCantBeUsedAreNamed breaks each file with a credential, after the service has read it.
func TestFilesThatCantBeUsedAreNamed(t *testing.T) {
	ca, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Client("isthmus")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: \"https://127.0.0.1:6443\", certificate-authority: ca}}]\nusers: [{name: u, user: {tokenFile: token}}]\n"
	redis := "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: r}\nspec:\n  type: configuration.redis\n  metadata:\n" +
		"  - {name: redisHost, value: \"127.0.0.1:1\"}\n  - {name: redisPassword, secretKeyRef: {name: redis, key: password}}\n"
	files := map[string]string{
		"ca": string(ca.Anchors()), "cert": string(cert), "key": string(key), "token": "secret-1234", "headers": "x-key=secret-1234\n",
		"kubeconfig": kubeconfig, "redis.yaml": redis, "secrets.json": `{"redis": {"password": "secret-1234"}}`,
	}
	for _, c := range []struct {
		yaml   string
		broken string
		want   string // the key that is named
	}{
		{"store: {kubernetes: {kubeconfig: kubeconfig}}", "kubeconfig", "store.kubernetes.kubeconfig"},
		{"store: {kubernetes: {kubeconfig: kubeconfig}}", "token", "store.kubernetes.kubeconfig"},
		{"store: {kubernetes: {kubeconfig: kubeconfig}}", "ca", "store.kubernetes.kubeconfig"},
		{"instances: {kubernetes: {kubeconfig: kubeconfig}}", "kubeconfig", "instances.kubernetes.kubeconfig"},
		{"policies: {kubernetes: {kubeconfig: kubeconfig, kinds: [network]}}", "kubeconfig", "policies.kubernetes.kubeconfig"},
		{"kubernetes: {kubeconfig: kubeconfig}\nlisten: {kubernetes: \"127.0.0.1:7490\", resolver: \"127.0.0.1:7400\"}", "kubeconfig", "kubernetes.kubeconfig"},
		{"identity: {sentry: {address: \"127.0.0.1:1\"}, trustAnchorsFrom: {configMap: x, kubeconfig: kubeconfig}}", "kubeconfig", "identity.trustAnchorsFrom.kubeconfig"},
		{"store: {consul: {token: {file: token}}}", "token", "store.consul.token"},
		{"instances: {consul: {token: {file: token}}}", "token", "instances.consul.token"},
		{"store: {consul: {address: \"https://127.0.0.1:8501\", tls: {ca: ca, cert: cert, key: key}}}", "ca", "store.consul.tls"},
		{"store: {etcd: {endpoints: [\"127.0.0.1:2379\"], username: u, password: {file: token}}}", "token", "store.etcd.password"},
		{"store: {etcd: {endpoints: [\"127.0.0.1:2379\"], tls: {ca: ca, cert: cert, key: key}}}", "key", "store.etcd.tls"},
		{"store: {dapr: {component: redis.yaml, secrets: secrets.json}}", "secrets.json", "store.dapr"},
		{"store: {dapr: {component: redis.yaml, secrets: secrets.json}}", "redis.yaml", "store.dapr"},
		{"tracing: {otlp: {endpoint: \"127.0.0.1:4317\", headersFile: headers}}", "headers", "tracing.otlp"},
		{"listen: {consul: \"127.0.0.1:8500\"}\nconsul: {tokens: [{app: shop/cart, token: {file: token}}]}", "token", "consul.tokens[0].token"},
		{"listen: {console: \"127.0.0.1:7500\", resolver: \"127.0.0.1:7400\"}\nconsole: {url: \"https://console.example\", tls: {cert: cert, key: key}, oidc: {issuer: \"https://id.example\", clientID: c, clientSecret: {file: token}, ca: ca, groups: {read: [\"*\"]}}}", "token", "console.oidc.clientSecret"},
		{"listen: {console: \"127.0.0.1:7500\", resolver: \"127.0.0.1:7400\"}\nconsole: {url: \"https://console.example\", tls: {cert: cert, key: key}, oidc: {issuer: \"https://id.example\", clientID: c, clientSecret: {file: token}, ca: ca, groups: {read: [\"*\"]}}}", "ca", "console.oidc"},
	} {
		for way, write := range settingstest.Ways {
			dir := t.TempDir()
			write(t, dir, files)
			text := "cluster: west\n" + c.yaml + "\n"
			if !strings.Contains(text, "identity:") {
				text += "identity: {insecure: true}\n"
			}
			cfg, err := Parse(filepath.Join(dir, "isthmus.yaml"), []byte(text))
			if err != nil {
				t.Errorf("%s: %v", c.yaml, err)
				break
			}
			if all := cfg.unusableFiles(); len(all) > 0 {
				t.Errorf("%s: with good files: %v", c.yaml, all[0].Err)
			}
			write(t, dir, map[string]string{c.broken: ""})
			all := cfg.unusableFiles()
			if !slices.ContainsFunc(all, func(f identity.Trusted) bool { return strings.HasPrefix(f.Subject, c.want) }) {
				t.Errorf("%s, %s %s: %v, want that %s is named", c.yaml, c.broken, way, all, c.want)
				continue
			}
			if strings.Contains(fmt.Sprint(all), "secret-1234") {
				t.Errorf("%s: a secret is shown: %v", c.yaml, all)
			}
		}
	}
}

// TestAFileThatCantBeUsedIsAWarning in status and checks.
func TestAFileThatCantBeUsedIsAWarning(t *testing.T) {
	now := &v1alpha1.StatusResponse{Trust: []*v1alpha1.TrustStatus{{Use: identity.ConfiguredFile, Subject: "store.consul.token", Error: "the file is empty"}}}
	if wrong := show.Unhealthy(now, time.Now()); !slices.ContainsFunc(wrong, func(p *v1alpha1.Unhealthy) bool { return strings.Contains(fmt.Sprint(p), "the file is empty") }) {
		t.Errorf("status says %v", wrong)
	}
	found := check.Look(&check.Facts{Now: time.Now(), Status: now})
	if !slices.ContainsFunc(found, func(r check.Result) bool {
		return r.Check == "certificates" && r.Level == check.Warn && strings.Contains(r.Fix, "stays in use")
	}) {
		t.Errorf("checks find %+v", found)
	}
}
