package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// What the other end's certificate must be for.
const (
	ofServer = x509.ExtKeyUsageServerAuth
	ofClient = x509.ExtKeyUsageClientAuth
)

// verifyChain checks that a chain leads to roots and allows a use, and returns its SPIFFE ID. As
// everywhere in X.509, a certificate without extended key usages allows both. Dapr's Sentry lists
// both.
func verifyChain(chain []*x509.Certificate, r roots, at time.Time, use x509.ExtKeyUsage) (spiffeid.ID, error) {
	id, chains, err := x509svid.Verify(chain, r, x509svid.WithTime(at))
	if err != nil {
		return id, dated(err, at)
	}
	if slices.ContainsFunc(chains, func(c []*x509.Certificate) bool { return allFor(c, use) }) {
		return id, nil
	}
	if use == ofServer {
		return id, fmt.Errorf("its certificate is not for servers; issue one whose extended key usage has serverAuth")
	}
	return id, fmt.Errorf("its certificate is not for clients; issue one whose extended key usage has clientAuth")
}

// allFor tells whether each certificate of a chain allows a use. The root, which is last, is
// trusted as it is.
func allFor(chain []*x509.Certificate, use x509.ExtKeyUsage) bool {
	return !slices.ContainsFunc(chain[:len(chain)-1], func(c *x509.Certificate) bool {
		if len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0 {
			return false
		}
		return !slices.Contains(c.ExtKeyUsage, use) && !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
	})
}

// Untimely is an error of a certificate that is not valid now: it has expired, or begins later.
type Untimely struct {
	err error
	why string
}

// Error is the error, with a hint about the clocks.
func (u *Untimely) Error() string { return fmt.Sprintf("%v; %s", u.err, u.why) }

// Unwrap is the error of x509.
func (u *Untimely) Unwrap() error { return u.err }

// dated adds to an error of a certificate's dates how far the clocks must differ, if they do.
func dated(err error, at time.Time) error {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		return err
	}
	if early := invalid.Cert.NotBefore.Sub(at); early > 0 {
		return &Untimely{err, fmt.Sprintf("the clock where it was made is at least %s ahead of this machine's: compare both", max(early.Round(time.Minute), time.Second))}
	}
	return &Untimely{err, fmt.Sprintf("it was not renewed, or this machine's clock is at least %s ahead: compare both", max(at.Sub(invalid.Cert.NotAfter).Round(time.Minute), time.Second))}
}
