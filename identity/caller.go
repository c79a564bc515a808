package identity

import (
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The headers in which a sidecar tells its app who makes a call. It takes out what a caller has sent
// in them.
const (
	CallerHeader        = "Isthmus-Caller"         // the SPIFFE ID of the caller's certificate
	CallerClusterHeader = "Isthmus-Caller-Cluster" // the cluster's name, where the certificate tells
)

// ParseCaller reads a [CallerHeader].
func ParseCaller(header string) (ID, error) {
	id, err := spiffeid.FromString(header)
	if err != nil {
		return ID{}, fmt.Errorf("header %s: %w", CallerHeader, err)
	}
	return FromSPIFFE(id)
}
