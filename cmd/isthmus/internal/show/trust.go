package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
)

// The states of a certificate.
const (
	certGood    = "good"
	certSoon    = "expires soon"
	certExpired = "expired"
	certEarly   = "not valid yet"
	certRefused = "refused" // it can't be used, and the error says why
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
}

// rootSoon is how long before its end a root is said to expire soon: a change of roots
// takes people time.
const rootSoon = 30 * 24 * time.Hour

// CertificateOf reads a certificate from its message.
func CertificateOf(m *v1alpha1.TrustStatus, now time.Time) Certificate {
	c := Certificate{
		Use: m.GetUse(), Cluster: m.GetCluster(), Subject: m.GetSubject(), TrustDomain: m.GetTrustDomain(),
		Fingerprint: m.GetFingerprint(), Error: m.GetError(), State: certGood,
	}
	if m.GetError() != "" && !identity.Renewed(m.GetUse()) {
		c.State = certRefused
	}
	if m.GetNotAfterUnixMs() == 0 {
		return c
	}
	from, to := time.UnixMilli(m.GetNotBeforeUnixMs()).UTC(), time.UnixMilli(m.GetNotAfterUnixMs()).UTC()
	c.NotBefore, c.NotAfter, c.left = from.Format(time.RFC3339), to.Format(time.RFC3339), to.Sub(now)
	switch {
	case c.left <= 0:
		c.State = certExpired
	case now.Before(from):
		c.State = certEarly
	case c.State == certGood && c.left < c.soon(to.Sub(from)):
		c.State = certSoon
	}
	return c
}

// soon is how long before its end a certificate with a life so long expires soon. One
// that is not a root is renewed by itself, at about half of its life; those for outsiders are
// whoever writes their files.
func (c *Certificate) soon(life time.Duration) time.Duration {
	switch {
	case c.root():
		return rootSoon
	case identity.ForOutsiders(c.Use):
		return min(life/3, rootSoon)
	}
	return life / 3
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
		_, err := fmt.Fprintf(w, "cluster %s has no certificate: either it has none yet, as isthmus status says, or its identity is insecure: nothing is encrypted and nobody is checked\n", cluster)
		if err != nil || len(all) == 0 {
			return err
		}
		fmt.Fprintln(w)
	}
	var table [][]string
	for _, c := range all {
		table = append(table, []string{c.Use, c.Cluster, c.name(), c.expiry(), c.State, c.print()})
	}
	if err := rows(w, []string{"USE", "CLUSTER", "SUBJECT", "EXPIRES", "STATE", "SHA-256"}, table); err != nil {
		return err
	}
	for _, c := range all {
		if text := c.advice(); text != "" {
			fmt.Fprintf(w, "\n%s: %s\n", c.who(), text)
		}
	}
	return nil
}

// name is the subject, with the trust domain that is demanded where roots are named.
func (c *Certificate) name() string {
	if c.Use == identity.PeerRoot && c.TrustDomain != "" {
		return c.Subject + " (for " + c.TrustDomain + ")"
	}
	return c.Subject
}

func (c *Certificate) expiry() string {
	switch {
	case c.NotAfter == "":
		return ""
	case c.left <= 0:
		return span(-c.left) + " ago"
	default:
		return "in " + span(c.left)
	}
}

// print is as much of the fingerprint as a person compares.
func (c *Certificate) print() string {
	const most = 16
	if len(c.Fingerprint) <= most {
		return c.Fingerprint
	}
	return c.Fingerprint[:most] + "…"
}

// line is the certificate in one line.
func (c *Certificate) line() string {
	parts := []string{c.name()}
	if c.NotAfter != "" {
		parts = append(parts, c.State+", until "+c.NotAfter, "SHA-256 "+c.print())
	}
	return strings.Join(parts, ", ") + after(": ", c.Error)
}

func (c *Certificate) who() string { return strings.TrimSpace(c.Use + " " + c.Cluster) }

// advice says what is wrong, or will be, and what to do.
func (c *Certificate) advice() string {
	switch c.State {
	case certExpired:
		return fmt.Sprintf("%s expired at %s; %s", c.Subject, c.NotAfter, c.remedy())
	case certSoon:
		return fmt.Sprintf("%s expires at %s; %s", c.Subject, c.NotAfter, c.remedy())
	case certEarly:
		text := fmt.Sprintf("%s is not valid before %s; ", c.Subject, c.NotBefore)
		if c.root() {
			text += "it counts from then on, and where that is not meant: "
		}
		return text + "compare the clocks of this machine and of the one that made it"
	}
	if identity.ForOutsiders(c.Use) && c.Error != "" {
		return "the newest can't be used; the one before stands: " + c.Error
	}
	return c.Error
}

func (c *Certificate) remedy() string {
	switch c.Use {
	case identity.DNSCertificate, identity.ConsulCertificate:
		part, _, _ := strings.Cut(c.Use, " ")
		return "write a new one to the files that " + part + ".tls names" + after("; those that are there can't be used: ", c.Error)
	case identity.OwnCertificate:
		return "it should have been renewed by now: " + orElse(c.Error, "see what isthmus status says of the identity")
	case identity.OwnRoot:
		return "add a new root beside it, have every certificate signed by that, then take this one out"
	case identity.PeerRoot:
		return fmt.Sprintf("add %s's new root to Cluster %[1]s, spec.trust.roots, and take this one out once nothing is signed by it", c.Cluster)
	default:
		return fmt.Sprintf("%s has not renewed it: see isthmus trust and isthmus status there", c.Cluster)
	}
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
