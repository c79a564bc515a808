package dapr

import (
	"fmt"
	"os"
	"strings"
)

func checkKubernetes(c component, n names) error {
	if c.property("configMapName") == "" {
		return fmt.Errorf("component %s: configMapName is missing", c.name)
	}
	if strings.ContainsAny(n.prefix, ".:{}") {
		return fmt.Errorf("prefix %q: keys of a ConfigMap have only letters, digits, \"-\" and \"_\", and a slash here is a point there", n.prefix)
	}
	return nil
}

// kubernetesNamespace is that of the ConfigMap, as Dapr's store has it.
func kubernetesNamespace() string {
	if namespace, ok := os.LookupEnv("NAMESPACE"); ok {
		return namespace
	}
	return "default"
}

func fromPoints(key string) string { return strings.ReplaceAll(key, ".", "/") }
