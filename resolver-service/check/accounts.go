package check

import (
	"context"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// accountHolder is a part of the service that has an account at a Kubernetes API server.
type accountHolder interface{ Account() apiserver.Account }

// Accounts are those of all parts of the service.
type Accounts []accountHolder

// Add notes the account of a part, if it has one.
func (a *Accounts) Add(part any) {
	if h, ok := part.(accountHolder); ok {
		*a = append(*a, h)
	}
}

// Lacking asks what the accounts may not do. Nothing is asked outside of Kubernetes.
func (a Accounts) Lacking(ctx context.Context) (all []Lack, err error) {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	for _, holder := range a {
		account := holder.Account()
		for _, role := range account.Roles {
			lacking, err := account.Server.Lacking(ctx, role.Rights)
			if err != nil {
				return all, err
			}
			if len(lacking) > 0 && (!role.Optional || len(lacking) < len(role.Rights)) {
				all = append(all, Lack{Role: role.Name, Rights: lacking})
			}
		}
	}
	return all, nil
}
