package identity

import (
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// CallerHeader is the HTTP header in which a sidecar with the middleware
// "middleware.http.isthmus.caller" tells its app who makes a call: the SPIFFE ID of the caller's
// certificate. The middleware takes out what a caller has sent in it.
const CallerHeader = "Isthmus-Caller"

// ParseCaller reads a [CallerHeader].
func ParseCaller(header string) (ID, error) {
	id, err := spiffeid.FromString(header)
	if err != nil {
		return ID{}, fmt.Errorf("header %s: %w", CallerHeader, err)
	}
	return FromSPIFFE(id)
}
