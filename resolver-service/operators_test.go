package resolverservice

import (
	"net/http"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestListenKubernetesIsOnLoopback, and needs an API server.
func TestListenKubernetesIsOnLoopback(t *testing.T) {
	kubeconfig := serverstest.FakeKubernetes(t, http.NotFoundHandler())
	for text, want := range map[string]string{
		"listen: {kubernetes: 127.0.0.1:7482}\nkubernetes: {kubeconfig: " + kubeconfig + "}":   "",
		"listen: {kubernetes: '[::1]:7482'}\nkubernetes: {kubeconfig: " + kubeconfig + "}":     "",
		"listen: {kubernetes: 0.0.0.0:7482}\nkubernetes: {kubeconfig: " + kubeconfig + "}":     "listen.kubernetes: 0.0.0.0:7482 is not on loopback",
		"listen: {kubernetes: 10.0.0.1:7482}\nkubernetes: {kubeconfig: " + kubeconfig + "}":    "listen.kubernetes: 10.0.0.1:7482 is not on loopback",
		"listen: {kubernetes: 7482}\nkubernetes: {kubeconfig: " + kubeconfig + "}":             "such as 127.0.0.1:7482",
		"listen: {kubernetes: 127.0.0.1:7482}":                                                 "kubernetes.kubeconfig: is missing, and this is no pod",
		"kubernetes: {kubeconfig: " + kubeconfig + "}":                                         "is for listen.kubernetes, which is not there",
		"listen: {kubernetes: 127.0.0.1:7482}\nkubernetes: {kubeconfig: /none, context: east}": "no such file",
	} {
		if !strings.Contains(text, "listen") {
			text = "listen: {admin: 127.0.0.1:0}\n" + text
		} else {
			text = strings.Replace(text, "{kubernetes: ", "{admin: 127.0.0.1:0, kubernetes: ", 1)
		}
		_, err := Parse("isthmus.yaml", []byte("cluster: west\nidentity: {insecure: true}\n"+text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
