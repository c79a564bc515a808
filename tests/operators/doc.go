// Package operators tests how people ask a service in Kubernetes: by the API server's port-forward,
// as the users that it knows, with what its RBAC allows them.
package operators
