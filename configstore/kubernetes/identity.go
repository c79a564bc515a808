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

// Identity is that of configstore.Identifier: the uid of kube-system. It is empty for an account
// that may not get that namespace.
func (s *Store) Identity(ctx context.Context, _ string) (string, error) {
	var namespace struct{ Metadata meta }
	err := s.look(ctx, "get the namespace "+systemNamespace, "/api/v1/namespaces/"+systemNamespace, &namespace)
	if code := apiserver.Code(err); code == http.StatusForbidden || code == http.StatusNotFound {
		return "", nil
	}
	return namespace.Metadata.UID, err
}

// look reads what is no object into a value, in a call of its own.
func (s *Store) look(ctx context.Context, what, path string, into any) error {
	return s.do(ctx, func(ctx context.Context) error {
		body, err := s.api.Call(ctx, apiserver.Request{Verb: "get", Method: http.MethodGet, Path: path})
		if err == nil {
			err = json.Unmarshal(body, into)
		}
		if err != nil {
			return fmt.Errorf("%s %w", what, err)
		}
		return nil
	})
}
