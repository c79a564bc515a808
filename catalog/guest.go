package catalog

import (
	"fmt"
	"strings"
	"time"
)

// Guest says what a cluster may do that joins for a while only. It gets the calls that it takes, and
// no other.
type Guest struct {
	Until time.Time // in UTC; from then on the Cluster counts as not there
	Apps  []App     // that it may run
	Takes []Take
}

// Take names calls to an app that a guest gets before every other route. Exactly one of Caller and
// Header says which.
type Take struct {
	App    App
	Caller App         // all calls of this app; the zero value: of all callers
	Header HeaderValue // the calls with this header; the zero value: with any
}

// HeaderValue is a header of HTTP, or metadata key of gRPC, with exactly that value.
type HeaderValue struct {
	Name  string // in lower case
	Value string
}

// MaxHeaderValue bounds the value of a header.
const MaxHeaderValue = 256

// Check checks the name by [CheckHeader], and that gRPC and HTTP carry the value as it is.
func (h HeaderValue) Check() error {
	if err := CheckHeader(h.Name); err != nil {
		return fmt.Errorf("header name %w", err)
	}
	if strings.HasSuffix(h.Name, "-bin") {
		return fmt.Errorf("header %s has a value in bytes, by its ending; choose one without -bin", h.Name)
	}
	if h.Value == "" || len(h.Value) > MaxHeaderValue {
		return fmt.Errorf("header value has %d characters; it has 1 to %d", len(h.Value), MaxHeaderValue)
	}
	for i, c := range []byte(h.Value) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("header value has %q at position %d; it has visible ASCII characters only", rune(c), i+1)
		}
	}
	return nil
}

// String is "name: value"; empty for the zero value.
func (h HeaderValue) String() string {
	if h == (HeaderValue{}) {
		return ""
	}
	return h.Name + ": " + h.Value
}
