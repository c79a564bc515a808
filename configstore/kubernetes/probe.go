package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober. An API server tells its version to anybody whose
// credentials are good.
func (s *Store) Server(ctx context.Context) (string, error) {
	inside, leave, err := s.life.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	body, err := s.api.Call(inside, apiserver.Request{Verb: "get", Method: http.MethodGet, Path: "/version"})
	if apiserver.Code(err) == http.StatusUnauthorized || apiserver.Code(err) == http.StatusForbidden {
		return "an API server at " + s.api.Host() + " that does not tell its version", nil
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err == nil {
		err = json.Unmarshal(body, &version)
	}
	if err != nil {
		return "", failed(ended(inside, fmt.Errorf("ask for the version %w", err)))
	}
	return "Kubernetes " + version.GitVersion + " at " + s.api.Host(), nil
}

// MayWrite is that of configstore.Prober: it asks the API server what our roles are.
func (s *Store) MayWrite(ctx context.Context) error {
	inside, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	lacking, err := s.api.Lacking(inside, s.rights(writes...))
	if c := apiserver.Code(err); c == http.StatusUnauthorized || c == http.StatusForbidden {
		err = fmt.Errorf("%w (%w)", err, configstore.ErrDenied)
	}
	if err != nil {
		return failed(ended(inside, fmt.Errorf("ask for permissions %w", err)))
	}
	if len(lacking) > 0 {
		return failed(fmt.Errorf("at %s: %w: the account may not %s; bind the role isthmus-writer to it, which is in deploy/kubernetes/rbac.yaml", s.api.Host(), configstore.ErrReadOnly, apiserver.List(lacking)))
	}
	return nil
}

// Verbs that the roles of the store have on its resources.
var (
	reads  = []string{"get", "list", "watch"}
	writes = []string{"create", "update", "delete"}
)

// rights are verbs on what the scope has.
func (s *Store) rights(verbs ...string) (all []apiserver.Right) {
	for _, r := range s.resources {
		for _, verb := range verbs {
			all = append(all, apiserver.Right{Verb: verb, Group: group, Resource: r.plural, Namespace: r.namespace, Name: r.name})
		}
	}
	return all
}

// Account is what the store of a service needs in Kubernetes.
func (s *Store) Account() apiserver.Account {
	roles := []apiserver.Role{
		{Name: "isthmus-reader", Rights: s.rights(reads...)},
		{Name: "isthmus-writer", Rights: s.rights(writes...), Optional: true},
		{Name: "isthmus-identity", Rights: []apiserver.Right{{Verb: "get", Resource: "namespaces", Name: systemNamespace}}},
	}
	if s.status != nil {
		status := s.rights("patch")
		for i := range status {
			status[i].Resource += "/status"
		}
		roles = append(roles, apiserver.Role{Name: "isthmus-status", Rights: status})
	}
	var translate apiserver.Role
	for _, d := range s.documentsOf() {
		translate.Name = "isthmus-translate"
		translate.Rights = append(translate.Rights, apiserver.Rights(d.Group, "", []string{d.Plural}, "list", "watch")...)
	}
	if translate.Name != "" {
		roles = append(roles, translate)
	}
	return apiserver.Account{Server: s.api.Server, Roles: roles}
}
