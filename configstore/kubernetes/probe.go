package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober.
func (s *Store) Server(ctx context.Context) (string, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	body, err := s.api.call(ctx, request{verb: "get", method: http.MethodGet, path: "/version"})
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err == nil {
		err = json.Unmarshal(body, &version)
	}
	if err != nil {
		return "", failed(ended(ctx, fmt.Errorf("ask for the version %w", err)))
	}
	return fmt.Sprintf("Kubernetes %s at %s", version.GitVersion, s.api.host()), nil
}

// accessReview is a SelfSubjectAccessReview: may we do this?
// https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
type accessReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Attributes struct {
			Group    string `json:"group"`
			Resource string `json:"resource"`
			Verb     string `json:"verb"`
		} `json:"resourceAttributes"`
	} `json:"spec"`
	Status struct {
		Allowed bool `json:"allowed"`
	} `json:"status"`
}

// MayWrite is that of configstore.Prober. It asks the API server, for every namespace, for
// each verb that a Write needs; anybody who is known may ask that.
func (s *Store) MayWrite(ctx context.Context) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for _, kind := range catalog.Kinds() {
		for _, verb := range []string{"create", "update", "delete"} {
			if err := s.may(ctx, verb, resourceOf(kind)); err != nil {
				return failed(ended(ctx, err))
			}
		}
	}
	return nil
}

// may asks whether we may do one thing.
func (s *Store) may(ctx context.Context, verb string, r resource) error {
	review := accessReview{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	a := &review.Spec.Attributes
	a.Group, a.Resource, a.Verb = group, r.plural, verb
	text, err := json.Marshal(review)
	if err != nil {
		return err
	}
	body, err := s.api.call(ctx, request{
		verb: "create", method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		contentType: "application/json", body: text,
	})
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	switch {
	case err != nil:
		return fmt.Errorf("ask for permission to %s %s %w", verb, r, err)
	case !review.Status.Allowed:
		return fmt.Errorf("%w (%w): the account at %s may not %s %s in every namespace; give it the verb, as deploy/kubernetes/rbac.yaml does",
			configstore.ErrReadOnly, configstore.ErrDenied, s.api.host(), verb, r)
	}
	return nil
}
