package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

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
	verbs := []string{"create", "update", "delete"}
	lacking := make([]string, len(s.resources)*len(verbs))
	group, groupCtx := errgroup.WithContext(inside)
	for i, r := range s.resources {
		for j, verb := range verbs {
			group.Go(func() error {
				allowed, err := s.api.allows(groupCtx, verb, r)
				if err == nil && !allowed {
					lacking[i*len(verbs)+j] = verb + " " + r.String()
				}
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return failed(ended(inside, fmt.Errorf("ask for permissions %w", err)))
	}
	if lacking = slices.DeleteFunc(lacking, func(l string) bool { return l == "" }); len(lacking) > 0 {
		return failed(fmt.Errorf("at %s: %w: the account may not %s; bind the role isthmus-writer to it, which is in deploy/kubernetes/rbac.yaml", s.api.Host(), configstore.ErrReadOnly, strings.Join(lacking, ", ")))
	}
	return nil
}

// allows asks whether our account has a verb on a resource.
func (a *apiServer) allows(ctx context.Context, verb string, r resource) (bool, error) {
	type attributes struct {
		Group     string `json:"group"`
		Resource  string `json:"resource"`
		Verb      string `json:"verb"`
		Namespace string `json:"namespace,omitempty"`
		Name      string `json:"name,omitempty"`
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": attributes{group, r.plural, verb, r.namespace, r.name}},
	})
	if err != nil {
		return false, err
	}
	body, err = a.Call(ctx, apiserver.Request{
		Verb: "create", Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ContentType: "application/json", Body: body,
	})
	if c := apiserver.Code(err); c == http.StatusUnauthorized || c == http.StatusForbidden {
		return false, fmt.Errorf("%w (%w)", err, configstore.ErrDenied)
	}
	if err != nil {
		return false, err
	}
	var answer struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err = json.Unmarshal(body, &answer)
	return answer.Status.Allowed, err
}
