package show

import (
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
)

// TrustedOf reads a certificate.
func TrustedOf(m *v1alpha1.TrustStatus) identity.Trusted {
	t := identity.Trusted{Use: m.GetUse(), Cluster: m.GetCluster(), Subject: m.GetSubject(), TrustDomain: m.GetTrustDomain(), Fingerprint: m.GetFingerprint()}
	if m.GetError() != "" {
		t.Err = errors.New(m.GetError())
	}
	if m.GetNotAfterUnixMs() != 0 {
		t.NotBefore, t.NotAfter = time.UnixMilli(m.GetNotBeforeUnixMs()).UTC(), time.UnixMilli(m.GetNotAfterUnixMs()).UTC()
	}
	return t
}

// CertificateState is the state that a certificate is in.
func CertificateState(m *v1alpha1.TrustStatus, now time.Time) identity.CertificateState {
	t := TrustedOf(m)
	return t.State(now)
}

// Certificates are what a service trusts, each with its state.
func Certificates(s *v1alpha1.StatusResponse, now time.Time) []*v1alpha1.TrustStatus {
	for _, m := range s.GetTrust() {
		m.State = string(CertificateState(m, now))
	}
	return s.GetTrust()
}

// Expired tells whether one of the certificates has expired.
func Expired(all []*v1alpha1.TrustStatus) bool {
	return slices.ContainsFunc(all, func(c *v1alpha1.TrustStatus) bool { return c.GetState() == string(identity.Expired) })
}

// Trust writes the certificates and roots, for people, and below them the faults of now and soon.
func Trust(w io.Writer, cluster string, all []*v1alpha1.TrustStatus, now time.Time) error {
	if !slices.ContainsFunc(all, func(c *v1alpha1.TrustStatus) bool { return c.GetUse() == identity.OwnCertificate }) {
		_, err := Say(w, "cluster %s has no certificate: either it has none yet, as isthmus status says, or its identity is insecure: nothing is encrypted and nobody is checked\n", cluster)
		if err != nil || len(all) == 0 {
			return err
		}
		Say(w, "\n")
	}
	var table [][]string
	for _, c := range all {
		table = append(table, []string{c.GetUse(), c.GetCluster(), CertificateName(c), Expiry(c, now), c.GetState(), Fingerprint(c)})
	}
	if err := rows(w, []string{"USE", "CLUSTER", "SUBJECT", "EXPIRES", "STATE", "SHA-256"}, table); err != nil {
		return err
	}
	for _, c := range all {
		if text := Advice(c, now); text != "" {
			Say(w, "\n%s: %s\n", certified(c), text)
		}
	}
	return nil
}

// CertificateName is the subject, with the trust domain that is demanded where roots are named.
func CertificateName(c *v1alpha1.TrustStatus) string {
	if c.GetUse() == identity.PeerRoot && c.GetTrustDomain() != "" {
		return c.GetSubject() + " (for " + c.GetTrustDomain() + ")"
	}
	return c.GetSubject()
}

// Expiry is when the certificate ends, from now.
func Expiry(c *v1alpha1.TrustStatus, now time.Time) string {
	left := time.UnixMilli(c.GetNotAfterUnixMs()).Sub(now)
	switch {
	case c.GetNotAfterUnixMs() == 0:
		return ""
	case left <= 0:
		return Span(-left) + " ago"
	default:
		return "in " + Span(left)
	}
}

// Fingerprint is as much of the fingerprint as a person compares.
func Fingerprint(c *v1alpha1.TrustStatus) string {
	const most = 16
	if len(c.GetFingerprint()) <= most {
		return c.GetFingerprint()
	}
	return c.GetFingerprint()[:most] + "…"
}

// certificateLine is a certificate in one line.
func certificateLine(c *v1alpha1.TrustStatus, err string, now time.Time) string {
	parts := []string{CertificateName(c)}
	if c.GetNotAfterUnixMs() != 0 {
		parts = append(parts, string(CertificateState(c, now))+", until "+Stamp(c.GetNotAfterUnixMs()), "SHA-256 "+Fingerprint(c))
	}
	return strings.Join(parts, ", ") + after(": ", err)
}

// certified is what a certificate is for.
func certified(c *v1alpha1.TrustStatus) string {
	return strings.TrimSpace(c.GetUse() + " " + c.GetCluster())
}

// Advice names the fault, or the one to come, and the cure.
func Advice(c *v1alpha1.TrustStatus, now time.Time) string {
	t := TrustedOf(c)
	what, fix := t.Advice(t.State(now))
	return what + after("; ", fix)
}
