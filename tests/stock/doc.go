// Package stock tests Dapr's sidecar without Isthmus in it, with the resolvers that it
// brings along: two clusters in network namespaces, each sidecar at an address of its own
// and asking the DNS server or the Consul API of its cluster's Isthmus; the same in the mode
// of Kubernetes, with its API server and Dapr's control plane. It runs on Linux only.
package stock
