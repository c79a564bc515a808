package identity

import (
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The headers in which a sidecar names the caller to its app. It takes out those that a caller has
// sent.
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
