package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// apiStatus is how the API server says no: metav1.Status.
type apiStatus struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"details"`
}

// longestAnswer is how much is read of an answer that says no.
const longestAnswer = 64 << 10

// refusalOf is why the server said no.
func refusalOf(response *http.Response) *apiStatus {
	text, _ := io.ReadAll(io.LimitReader(response.Body, longestAnswer)) // half of it is better than nothing
	s := &apiStatus{}
	if json.Unmarshal(text, s) != nil || s.Message == "" { // a proxy, or another server
		s.Message = strings.TrimSpace(string(text[:min(len(text), 200)]))
	}
	s.Code = response.StatusCode
	return s
}

func (s *apiStatus) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", s.Code, http.StatusText(s.Code), s.Message))
}

// Is tells that credentials are refused, or do not suffice.
func (s *apiStatus) Is(target error) bool {
	return target == configstore.ErrDenied && (s.Code == http.StatusUnauthorized || s.Code == http.StatusForbidden)
}

// code is what the server said no with, 0 if it did not.
func code(err error) int {
	var s *apiStatus
	if errors.As(err, &s) {
		return s.Code
	}
	return 0
}

// expired tells whether what happened since a resourceVersion is not known any more.
func expired(err error) bool {
	var s *apiStatus
	return errors.As(err, &s) && (s.Code == http.StatusGone || s.Reason == "Expired" || s.Reason == "Gone")
}

// missing tells whether an object is not there, rather than its definition or a
// namespace.
func missing(err error, r resource) bool {
	var s *apiStatus
	return errors.As(err, &s) && s.Code == http.StatusNotFound && s.Details.Name != "" && s.Details.Kind == r.plural
}

// definitions is how the custom resources get to be known.
const definitions = "kubectl apply -f deploy/kubernetes/crds.yaml"

// advise adds what to do about an error.
func advise(err error, verb string, r resource) error {
	var s *apiStatus
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
	var s *apiStatus
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
