package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// missing tells whether an object is not there, rather than its definition or a
// namespace.
func missing(err error, r resource) bool {
	var s *apiserver.Status
	return errors.As(err, &s) && s.Code == http.StatusNotFound && s.Details.Name != "" && s.Details.Kind == r.plural
}

// definitions is how the custom resources get to be known.
const definitions = "kubectl apply -f deploy/kubernetes/crds.yaml"

// advise adds what to do about an error.
func advise(err error, verb string, r resource) error {
	var s *apiserver.Status
	if !errors.As(err, &s) {
		return err
	}
	switch {
	case s.Code == http.StatusForbidden:
		return fmt.Errorf("%w (%w); give the account the verb %q on %s, as deploy/kubernetes/rbac.yaml does", err, configstore.ErrDenied, verb, r)
	case s.Code == http.StatusUnauthorized:
		return fmt.Errorf("%w (%w); renew the token or the certificate", err, configstore.ErrDenied)
	case s.Code == http.StatusNotFound && s.Details.Kind == "namespaces":
		return fmt.Errorf("%w; make it first: kubectl create namespace %s", err, s.Details.Name)
	case s.Code == http.StatusNotFound && !missing(err, r):
		return fmt.Errorf("%w; the API server does not know %s: %s", err, r, definitions)
	}
	return err
}

// writeError is why a write was not made, by the contract's errors.
func writeError(err error, verb string, r resource) error {
	var s *apiserver.Status
	if !errors.As(err, &s) {
		return err
	}
	switch {
	case s.Code == http.StatusForbidden:
		return fmt.Errorf("%w: %w", configstore.ErrReadOnly, advise(err, verb, r))
	case s.Code == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", configstore.ErrInvalid, err)
	case s.Code == http.StatusRequestEntityTooLarge, strings.Contains(s.Message, "request is too large"), strings.Contains(s.Message, "larger than max"):
		return fmt.Errorf("%w: with what Kubernetes adds to it: %w", configstore.ErrTooLarge, err)
	}
	return advise(err, verb, r)
}
