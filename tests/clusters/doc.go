// Package clusters tests Isthmus in whole Kubernetes clusters on one machine: the API server, its
// controllers and its scheduler, and a node whose kubelet has containerd run pods. Dapr and Isthmus
// are installed by their charts. "make test-install" runs it, on Linux and as root.
package clusters
