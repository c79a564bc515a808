package dns

import (
	"os"
	"regexp"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// kubernetesAddress is that of the service in Kubernetes, in the page and in the YAML.
const kubernetesAddress = "10.96.0.53"

// TestKubernetesPage holds deploy/kubernetes/dns.yaml and docs/how-to/dns-on-kubernetes.md to each
// other, to Kubernetes' types, and to the block of docs/reference/dns.md that TestChain runs.
func TestKubernetesPage(t *testing.T) {
	page := pageOf(t, "how-to/dns-on-kubernetes.md")
	block := settingOf(t, page, "corefile", "isthmus.internal")
	if want := strings.Replace(settingOf(t, pageOf(t, "reference/dns.md"), "corefile", "isthmus.internal"), "127.0.0.1:7453", kubernetesAddress, 1); block != want {
		t.Errorf("docs/how-to/dns-on-kubernetes.md has\n%s, docs/reference/dns.md\n%s", block, want)
	}
	manifests, err := os.ReadFile("../../deploy/kubernetes/dns.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var service core.Service
	var config core.ConfigMap
	documents := strings.Split(string(manifests), "\n---\n")
	if len(documents) != 2 {
		t.Fatalf("%d documents in dns.yaml", len(documents))
	}
	strictly(t, documents[0]+"\n", &config)
	strictly(t, documents[1], &service)
	if service.Spec.ClusterIP != kubernetesAddress || len(service.Spec.Ports) != 2 {
		t.Errorf("the service: %+v", service.Spec)
	}
	for i, protocol := range []core.Protocol{core.ProtocolUDP, core.ProtocolTCP} {
		if p := service.Spec.Ports[i]; p.Port != 53 || p.Protocol != protocol || p.TargetPort.IntValue() != 7453 {
			t.Errorf("port %d of the service: %+v", i, p)
		}
	}
	if got := config.Data["isthmus.server"]; got != block {
		t.Errorf("the ConfigMap has\n%s, the page\n%s", got, block)
	}
	var policy networking.NetworkPolicy
	text, err := os.ReadFile("../../deploy/kubernetes/networkpolicy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	strictly(t, string(text), &policy)
	if policy.Namespace != service.Namespace || policy.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"] != service.Spec.Selector["app.kubernetes.io/name"] {
		t.Errorf("the policy is of other pods than the service: %+v", policy)
	}
}

func strictly(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
}

// pageOf is a page of docs/.
func pageOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var fenced = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// settingOf is the block of a page in a language that has a word in it.
func settingOf(t *testing.T, page, language, word string) string {
	t.Helper()
	for _, m := range fenced.FindAllStringSubmatch(page, -1) {
		if m[1] == language && strings.Contains(m[2], word) {
			return m[2]
		}
	}
	t.Fatalf("the page shows no %s with %s", language, word)
	return ""
}
