package kubernetes

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober. An API server tells its version to anybody whose
// credentials are good.
func (s *Store) Server(ctx context.Context) (string, error) {
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	err := s.look(ctx, "ask for the version", "/version", &version)
	if errors.Is(err, configstore.ErrDenied) {
		return "an API server at " + s.api.Host() + " that does not tell its version", nil
	}
	return "Kubernetes " + version.GitVersion + " at " + s.api.Host(), err
}

// MayWrite is that of configstore.Prober: it asks the API server what our roles are.
func (s *Store) MayWrite(ctx context.Context) error {
	return s.do(ctx, func(ctx context.Context) error {
		lacking, err := s.api.Lacking(ctx, s.rights(writes...))
		if err != nil {
			return fmt.Errorf("ask for permissions %w", err)
		}
		if len(lacking) > 0 {
			return fmt.Errorf("at %s: %w: the account may not %s; bind the role isthmus-writer to it, which is in deploy/kubernetes/rbac.yaml", s.api.Host(), configstore.ErrReadOnly, apiserver.List(lacking))
		}
		return nil
	})
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
	return apiserver.Account{Server: s.api, Roles: roles}
}
