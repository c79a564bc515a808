package system

import (
	"fmt"
	"strings"
)

// export lets every app in a cluster call an app.
func export(namespace, id, cluster string) string {
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: %s, name: %s}
spec:
  allow:
  - {cluster: %s}
`, namespace, id, cluster)
}

// selection lets an app call others, each written as in YAML without the dash, such
// as "app: orders".
func selection(namespace, id string, endpoints ...string) string {
	text := fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: %s, name: %s}
spec:
  endpoints:
`, namespace, id)
	if len(endpoints) == 0 {
		text = strings.TrimSuffix(text, "endpoints:\n") + "endpoints: []\n"
	}
	for _, e := range endpoints {
		text += "  - {" + e + "}\n"
	}
	return text
}
