package identity

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// What the certificate of the other end must be for.
const (
	ofServer = x509.ExtKeyUsageServerAuth
	ofClient = x509.ExtKeyUsageClientAuth
)

// verifyChain checks that a chain leads to roots and is for a server or a client, and returns
// who it names. As everywhere in X.509, a certificate that lists no extended key usage is for
// both. Dapr's Sentry lists both.
func verifyChain(chain []*x509.Certificate, r roots, at time.Time, use x509.ExtKeyUsage) (spiffeid.ID, error) {
	id, chains, err := x509svid.Verify(chain, r, x509svid.WithTime(at))
	if err != nil {
		return id, err
	}
	if slices.ContainsFunc(chains, func(c []*x509.Certificate) bool { return allFor(c, use) }) {
		return id, nil
	}
	if use == ofServer {
		return id, fmt.Errorf("its certificate is not for servers; issue one whose extended key usage has serverAuth")
	}
	return id, fmt.Errorf("its certificate is not for clients; issue one whose extended key usage has clientAuth")
}

// allFor tells whether each certificate of a chain may be used so. The root, which is last,
// counts by being trusted.
func allFor(chain []*x509.Certificate, use x509.ExtKeyUsage) bool {
	return !slices.ContainsFunc(chain[:len(chain)-1], func(c *x509.Certificate) bool {
		if len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0 {
			return false
		}
		return !slices.Contains(c.ExtKeyUsage, use) && !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
	})
}
