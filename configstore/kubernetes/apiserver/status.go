package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// Status is how the API server says no: metav1.Status. It is an error.
type Status struct {
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
func refusalOf(response *http.Response) *Status {
	text, _ := io.ReadAll(io.LimitReader(response.Body, longestAnswer)) // half of it is better than nothing
	s := &Status{}
	if json.Unmarshal(text, s) != nil || s.Message == "" { // a proxy, or another server
		s.Message = strings.TrimSpace(string(text[:min(len(text), 200)]))
	}
	s.Code = response.StatusCode
	return s
}

// Error is the code and what the server says.
func (s *Status) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", s.Code, http.StatusText(s.Code), s.Message))
}

// Is tells that credentials are refused, or do not suffice.
func (s *Status) Is(target error) bool {
	return target == configstore.ErrDenied && (s.Code == http.StatusUnauthorized || s.Code == http.StatusForbidden)
}

// Code is what the server said no with, 0 if it did not.
func Code(err error) int {
	var s *Status
	if errors.As(err, &s) {
		return s.Code
	}
	return 0
}

// Expired tells whether what happened since a resourceVersion is not known any more.
func Expired(err error) bool {
	var s *Status
	return errors.As(err, &s) && (s.Code == http.StatusGone || s.Reason == "Expired" || s.Reason == "Gone")
}
