package resolverservice

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// manifest reads the document of a kind in a file of deploy/kubernetes.
func manifest(t *testing.T, file, kind string, into any) {
	t.Helper()
	text, err := os.ReadFile("../deploy/kubernetes/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		if strings.Contains("\n"+document, "\nkind: "+kind+"\n") {
			if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			return
		}
	}
	t.Fatalf("%s has no %s", file, kind)
}

// TestThePodInKubernetesHasNoMoreThanItNeeds, by the restricted profile of Kubernetes' Pod
// Security Standards.
func TestThePodInKubernetesHasNoMoreThanItNeeds(t *testing.T) {
	var deployment apps.Deployment
	manifest(t, "deployment.yaml", "Deployment", &deployment)
	pod := deployment.Spec.Template.Spec
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %+v", s)
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
			t.Errorf("container %s: security context %+v", c.Name, s)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("container %s: resources %+v", c.Name, c.Resources)
		}
	}
}

// TestTheServiceInKubernetesShowsNobodyItsViews by the configuration of the manifests.
func TestTheServiceInKubernetesShowsNobodyItsViews(t *testing.T) {
	var config core.ConfigMap
	manifest(t, "deployment.yaml", "ConfigMap", &config)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var settings map[string]any
	if err := yaml.Unmarshal([]byte(config.Data["isthmus.yaml"]), &settings); err != nil {
		t.Fatal(err)
	}
	outside := map[string]any{"kubernetes": map[string]any{"kubeconfig": kubeconfig}}
	settings["store"], settings["instances"], settings["kubernetes"] = outside, outside, outside["kubernetes"]
	settings["identity"].(map[string]any)["trustAnchorsFrom"].(map[string]any)["kubeconfig"] = kubeconfig
	whole, err := yaml.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := Parse("isthmus.yaml", whole)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen.Debug != "" || cfg.Listen.DebugExposed || len(cfg.DNS.Forwarders) != 0 || cfg.Identity.Insecure || cfg.Gateway.Plaintext {
		t.Errorf("the configuration is %+v", cfg)
	}
	var policy networking.NetworkPolicy
	manifest(t, "networkpolicy.yaml", "NetworkPolicy", &policy)
	open := map[int]int{} // how many peers may reach a port; 0: everybody
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			open[port.Port.IntValue()] = len(rule.From)
		}
	}
	for port, peers := range map[int]int{7400: 1, 15443: 0, 7453: 1} {
		if got, ok := open[port]; !ok || got != peers {
			t.Errorf("port %d is open to %d peers (%v), want %d", port, got, ok, peers)
		}
	}
	if len(open) != 3 {
		t.Errorf("the policy opens %v", open)
	}
}

// TestTheServiceInKubernetesMayNotWriteObjects unless writer.yaml is applied.
func TestTheServiceInKubernetesMayNotWriteObjects(t *testing.T) {
	text, err := os.ReadFile("../deploy/kubernetes/service.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "isthmus-writer") {
		t.Error("service.yaml binds the role that writes objects")
	}
	var binding rbac.ClusterRoleBinding
	manifest(t, "writer.yaml", "ClusterRoleBinding", &binding)
	if binding.RoleRef.Name != "isthmus-writer" || binding.Subjects[0].Name != "isthmus" {
		t.Errorf("writer.yaml: %+v", binding)
	}
}

// numbersOf calls found for each number of a configuration, by its path.
func numbersOf(in reflect.Type, path []string, found func(path []string)) {
	switch in.Kind() {
	case reflect.Pointer:
		numbersOf(in.Elem(), path, found)
	case reflect.Slice:
		numbersOf(in.Elem(), append(slices.Clone(path), "items"), found)
	case reflect.Struct:
		for i := range in.NumField() {
			field := in.Field(i)
			name, more, tagged := strings.Cut(field.Tag.Get("yaml"), ",")
			switch {
			case name == "-" || !tagged && name == "":
			case strings.Contains(more, "inline"):
				numbersOf(field.Type, path, found)
			default:
				numbersOf(field.Type, append(slices.Clone(path), "properties", name), found)
			}
		}
	case reflect.Int, reflect.Float64:
		found(path)
	}
}

// TestTheChartKnowsEachNumberOfAConfiguration, so that it refuses others before a service does.
func TestTheChartKnowsEachNumberOfAConfiguration(t *testing.T) {
	text, err := os.ReadFile("../deploy/chart/isthmus/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := yaml.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	count := 0
	numbersOf(reflect.TypeFor[Config](), []string{"properties", "config"}, func(path []string) {
		count++
		at := schema
		for _, step := range path {
			if name, is := at["$ref"].(string); is {
				at, _ = schema["$defs"].(map[string]any)[strings.TrimPrefix(name, "#/$defs/")].(map[string]any)
			}
			at, _ = at[step].(map[string]any)
		}
		if at == nil || at["type"] == nil && at["$ref"] == nil {
			t.Errorf("values.schema.json has nothing at %s", strings.Join(path, "/"))
		}
	})
	if count < 15 {
		t.Errorf("a configuration has %d numbers", count)
	}
}
