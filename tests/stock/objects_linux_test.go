package stock

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// export lets every app in a cluster call an app.
func export(id, cluster string) string { return meshtest.Export(namespace, id, cluster) }

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

// selection lets an app call others; see [meshtest.Selection].
func selection(id string, endpoints ...string) string {
	return meshtest.Selection(namespace, id, endpoints...)
}
