package stock

import (
	"fmt"
	"strings"
)

// export lets every app in a cluster call an app.
func export(id, cluster string) string {
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: %s, name: %s}
spec:
  allow:
  - {cluster: %s}
`, namespace, id, cluster)
}

// instance says where an instance of an app is, and has it checked twice a second.
func instance(id, name, address string) string {
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppInstance
metadata: {namespace: %s, name: %s-%s}
spec:
  app: %s
  address: "%s"
  check: {tcp: {}, interval: 500ms}
`, namespace, id, name, id, address)
}

// selection lets an app call others, each written as in YAML without the dash, such as
// "app: orders".
func selection(id string, endpoints ...string) string {
	list := " []"
	if len(endpoints) > 0 {
		list = "\n  - {" + strings.Join(endpoints, "}\n  - {") + "}"
	}
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: %s, name: %s}
spec:
  endpoints:%s
`, namespace, id, list)
}
