package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

var _ configstore.Identifier = (*Store)(nil)

// systemNamespace is a namespace that every Kubernetes cluster has, and keeps.
const systemNamespace = "kube-system"

// Identity is that of configstore.Identifier: the uid of kube-system. It is empty for an account that
// may not get that namespace.
func (s *Store) Identity(ctx context.Context, _ string) (string, error) {
	inside, leave, err := s.life.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	body, err := s.api.Call(inside, apiserver.Request{Verb: "get", Method: http.MethodGet, Path: "/api/v1/namespaces/" + systemNamespace})
	if code := apiserver.Code(err); code == http.StatusForbidden || code == http.StatusNotFound {
		return "", nil
	}
	var namespace struct{ Metadata meta }
	if err == nil {
		err = json.Unmarshal(body, &namespace)
	}
	if err != nil {
		return "", failed(ended(inside, fmt.Errorf("get the namespace %s %w", systemNamespace, err)))
	}
	return namespace.Metadata.UID, nil
}
