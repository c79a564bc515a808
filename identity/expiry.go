package identity

import (
	"fmt"
	"strings"
	"time"
)

// CertificateState is how a certificate stands at a moment.
type CertificateState string

// The states of a certificate.
const (
	Good        CertificateState = "good"
	ExpiresSoon CertificateState = "expires soon"
	Expired     CertificateState = "expired"
	Early       CertificateState = "not valid yet"
	Refused     CertificateState = "refused" // it can't be used, and Trusted.Err says why
)

// rootSoon is how long before its end a root is said to expire soon: a change of roots
// takes people time.
const rootSoon = 30 * 24 * time.Hour

func (t *Trusted) root() bool { return t.Use == OwnRoot || t.Use == PeerRoot }

// State is how the certificate stands at a moment.
func (t *Trusted) State(now time.Time) CertificateState {
	state := Good
	if t.Err != nil && !Renewed(t.Use) {
		state = Refused
	}
	if t.NotAfter.IsZero() {
		return state
	}
	left := t.NotAfter.Sub(now)
	switch {
	case left <= 0:
		return Expired
	case now.Before(t.NotBefore):
		return Early
	case state == Good && left < t.soon():
		return ExpiresSoon
	}
	return state
}

// soon is how long before its end a certificate expires soon. One that is not a root is renewed
// by itself, at about half of its life; those for outsiders are whoever writes their files.
func (t *Trusted) soon() time.Duration {
	life := t.NotAfter.Sub(t.NotBefore)
	switch {
	case t.root():
		return rootSoon
	case ForOutsiders(t.Use):
		return min(life/3, rootSoon)
	}
	return life / 3
}

// Advice names the fault of a state, or the one to come, and the cure. Both are empty if nothing
// is, and the error alone may say both.
func (t *Trusted) Advice(state CertificateState) (what, fix string) {
	failed := ""
	if t.Err != nil {
		failed = t.Err.Error()
	}
	end := t.NotAfter.UTC().Format(time.RFC3339)
	switch state {
	case Expired:
		return fmt.Sprintf("%s expired at %s", t.Subject, end), t.remedy(failed)
	case ExpiresSoon:
		return fmt.Sprintf("%s expires at %s", t.Subject, end), t.remedy(failed)
	case Early:
		fix = "compare the clocks of this machine and of the one that made it"
		if t.root() {
			fix = "it counts from then on, and where that is not meant: " + fix
		}
		return fmt.Sprintf("%s is not valid before %s", t.Subject, t.NotBefore.UTC().Format(time.RFC3339)), fix
	}
	if t.Use == ConfiguredFile {
		return failed, "correct the file: what was read of it before stays in use, and the service would not start again"
	}
	if ForOutsiders(t.Use) && failed != "" {
		return "the newest can't be used", "the one before stands: " + failed
	}
	return failed, ""
}

func (t *Trusted) remedy(failed string) string {
	switch t.Use {
	case DNSCertificate, ConsulCertificate, ConsoleCertificate:
		part, _, _ := strings.Cut(t.Use, " ")
		fix := "write a new one to the files that " + part + ".tls names"
		if failed != "" {
			fix += "; those that are there can't be used: " + failed
		}
		return fix
	case OwnCertificate:
		if failed == "" {
			failed = "see what isthmus status says of the identity"
		}
		return "it should have been renewed by now: " + failed
	case OwnRoot:
		return "add a new root beside it, have every certificate signed by that, then take this one out"
	case PeerRoot:
		return fmt.Sprintf("add %s's new root to Cluster %[1]s, spec.trust.roots, and take this one out once nothing is signed by it", t.Cluster)
	default:
		return fmt.Sprintf("%s has not renewed it: see isthmus trust and isthmus status there", t.Cluster)
	}
}
