package resolverservice

import (
	"context"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// accountHolder is a part of the service that has an account at a Kubernetes API server.
type accountHolder interface{ Account() apiserver.Account }

// accounts are those of all parts.
type accounts []accountHolder

// add notes the account of a part, if it has one.
func (a *accounts) add(part any) {
	if h, ok := part.(accountHolder); ok {
		*a = append(*a, h)
	}
}

// lacking asks what the accounts may not do. Nothing is asked outside of Kubernetes.
func (a accounts) lacking(ctx context.Context) (all []check.Lack, err error) {
	ctx, cancel := context.WithTimeout(ctx, check.Within)
	defer cancel()
	for _, holder := range a {
		account := holder.Account()
		for _, role := range account.Roles {
			lacking, err := account.Server.Lacking(ctx, role.Rights)
			if err != nil {
				return all, err
			}
			if len(lacking) > 0 && (!role.Optional || len(lacking) < len(role.Rights)) {
				all = append(all, check.Lack{Role: role.Name, Rights: lacking})
			}
		}
	}
	return all, nil
}
