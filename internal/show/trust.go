package show

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// The states of a certificate.
const (
	certGood    = string(identity.Good)
	certSoon    = string(identity.ExpiresSoon)
	certExpired = string(identity.Expired)
	certEarly   = string(identity.Early)
	certRefused = string(identity.Refused)
)

// Certificate is what is trusted, as programs read it: these fields and no others, all
// of them always there.
type Certificate struct {
	Use         string `json:"use" yaml:"use"`
	Cluster     string `json:"cluster" yaml:"cluster"`
	Subject     string `json:"subject" yaml:"subject"`
	TrustDomain string `json:"trustDomain" yaml:"trustDomain"`
	State       string `json:"state" yaml:"state"`
	NotBefore   string `json:"notBefore" yaml:"notBefore"`
	NotAfter    string `json:"notAfter" yaml:"notAfter"`
	Fingerprint string `json:"fingerprint" yaml:"fingerprint"`
	Error       string `json:"error" yaml:"error"`

	left time.Duration
	of   identity.Trusted
}

// CertificateOf reads a certificate from its message.
func CertificateOf(m *v1alpha1.TrustStatus, now time.Time) Certificate {
	of := check.TrustedOf(m)
	c := Certificate{
		Use: of.Use, Cluster: of.Cluster, Subject: of.Subject, TrustDomain: of.TrustDomain,
		Fingerprint: of.Fingerprint, Error: m.GetError(), State: string(of.State(now)), of: of,
	}
	if !of.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter, c.left = of.NotBefore.Format(time.RFC3339), of.NotAfter.Format(time.RFC3339), of.NotAfter.Sub(now)
	}
	return c
}

// Certificates reads what a service trusts.
func Certificates(s *v1alpha1.StatusResponse, now time.Time) []Certificate {
	all := make([]Certificate, 0, len(s.GetTrust()))
	for _, m := range s.GetTrust() {
		all = append(all, CertificateOf(m, now))
	}
	return all
}

// Expired tells whether one of the certificates has expired.
func Expired(all []Certificate) bool {
	for i := range all {
		if all[i].State == certExpired {
			return true
		}
	}
	return false
}

// Trust writes what is trusted, for people, and below what is wrong or soon will be.
func Trust(w io.Writer, cluster string, all []Certificate) error {
	if !slices.ContainsFunc(all, func(c Certificate) bool { return c.Use == identity.OwnCertificate }) {
		_, err := Say(w, "cluster %s has no certificate: either it has none yet, as isthmus status says, or its identity is insecure: nothing is encrypted and nobody is checked\n", cluster)
		if err != nil || len(all) == 0 {
			return err
		}
		Say(w, "\n")
	}
	var table [][]string
	for _, c := range all {
		table = append(table, []string{c.Use, c.Cluster, c.Name(), c.Expiry(), c.State, c.Print()})
	}
	if err := rows(w, []string{"USE", "CLUSTER", "SUBJECT", "EXPIRES", "STATE", "SHA-256"}, table); err != nil {
		return err
	}
	for _, c := range all {
		if text := c.Advice(); text != "" {
			Say(w, "\n%s: %s\n", c.who(), text)
		}
	}
	return nil
}

// Name is the subject, with the trust domain that is demanded where roots are named.
func (c *Certificate) Name() string {
	if c.Use == identity.PeerRoot && c.TrustDomain != "" {
		return c.Subject + " (for " + c.TrustDomain + ")"
	}
	return c.Subject
}

// Expiry is when the certificate ends, from now.
func (c *Certificate) Expiry() string {
	switch {
	case c.NotAfter == "":
		return ""
	case c.left <= 0:
		return Span(-c.left) + " ago"
	default:
		return "in " + Span(c.left)
	}
}

// Print is as much of the fingerprint as a person compares.
func (c *Certificate) Print() string {
	const most = 16
	if len(c.Fingerprint) <= most {
		return c.Fingerprint
	}
	return c.Fingerprint[:most] + "…"
}

// line is the certificate in one line.
func (c *Certificate) line() string {
	parts := []string{c.Name()}
	if c.NotAfter != "" {
		parts = append(parts, c.State+", until "+c.NotAfter, "SHA-256 "+c.Print())
	}
	return strings.Join(parts, ", ") + after(": ", c.Error)
}

func (c *Certificate) who() string { return strings.TrimSpace(c.Use + " " + c.Cluster) }

// Advice says what is wrong, or will be, and what to do.
func (c *Certificate) Advice() string {
	what, fix := c.of.Advice(identity.CertificateState(c.State))
	return what + after("; ", fix)
}
