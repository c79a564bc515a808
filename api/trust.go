package api

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Bounds of what a Cluster's resolver service is checked against.
const (
	MaxTrustDomain = 255      // characters; SPIFFE-ID, 2.3
	MaxRoots       = 20       // certificates
	MaxRootsBytes  = 64 << 10 // of PEM
)

const (
	pemBegin    = "-----BEGIN "
	certificate = "CERTIFICATE"
	privateKey  = "PRIVATE KEY" // ends the type of every sort of private key
)

func (v clusterValidator) trust(m *v1alpha1.Trust) catalog.Trust {
	if m == nil {
		return catalog.Trust{}
	}
	t := catalog.Trust{Domain: intern(m.Domain), AppDomain: intern(m.AppDomain), Rotation: intern(m.Rotation)}
	if m.Domain == "" && m.Roots == "" && m.AppDomain == "" && m.Rotation == "" && v.blank("spec.trust") {
		v.refuse("spec.trust", "says neither a domain nor roots", "write at least one, or leave trust out")
	}
	if m.Rotation != "" && m.Rotation != catalog.RotationAccept {
		v.refuse("spec.trust.rotation", fmt.Sprintf("is %q", strict.Shorten(m.Rotation)), "write accept, or leave it out, so that roots change only by your own hand")
	}
	if m.Rotation != "" && m.Roots == "" {
		v.refuse("spec.trust.rotation", "is for a cluster with roots of its own, and there are no spec.trust.roots", "write the roots beside it, or leave it out: clusters that share roots change them in their own Sentry")
	}
	if m.Domain != "" {
		v.check(checkTrustDomain(m.Domain), "spec.trust.domain", "write it as in the peer's SPIFFE IDs, such as east.example")
	}
	if m.AppDomain != "" {
		v.check(checkTrustDomain(m.AppDomain), "spec.trust.appDomain", "write it as in the SPIFFE IDs of the cluster's apps, such as east.example")
	}
	if m.Roots != "" {
		t.Roots = v.roots("spec.trust.roots", m.Roots)
	}
	return t
}

// checkTrustDomain holds a name to SPIFFE-ID, 2.1.
func checkTrustDomain(s string) error {
	if strings.HasPrefix(s, "spiffe:") {
		return errors.New("the trust domain is written without spiffe:// and without a path")
	}
	if len(s) > MaxTrustDomain {
		return fmt.Errorf("the trust domain is %d characters long; at most %d are taken", len(s), MaxTrustDomain)
	}
	for i, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-._", c) {
			return fmt.Errorf("the trust domain has %q at position %d; lower-case letters, digits and . _ - are taken", c, i+1)
		}
	}
	return nil
}

// roots reads certificates of authorities, and writes them again as PEM with nothing
// else in it. No error repeats a part of the text: it may be a key.
func (v clusterValidator) roots(path, text string) string {
	if len(text) > MaxRootsBytes {
		v.refuse(path, fmt.Sprintf("is %d bytes long; at most %d are taken", len(text), MaxRootsBytes), "keep the roots that are still used")
		return ""
	}
	blocks := pemBlocks(text)
	switch {
	case len(blocks) == 0:
		v.refuse(path, "has no certificate in it", "write one or more blocks from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----")
		return ""
	case len(blocks) > MaxRoots:
		v.refuse(path, fmt.Sprintf("has %d certificates; at most %d are taken", len(blocks), MaxRoots), "keep the roots that are still used")
		return ""
	}
	var out strings.Builder
	first := map[string]int{}
	for i, block := range blocks {
		der, what, fix := root(block)
		if j, there := first[string(der)]; there && what == "" {
			what, fix = fmt.Sprintf("is the same certificate as block %d", j+1), "keep one of them"
		}
		if what != "" {
			v.refuse(path, fmt.Sprintf("block %d %s", i+1, what), fix)
			return ""
		}
		first[string(der)] = i
		out.Write(pem.EncodeToMemory(&pem.Block{Type: certificate, Bytes: der}))
	}
	if out.Len() > MaxRootsBytes { // lines that were longer have become more
		v.refuse(path, fmt.Sprintf("is %d bytes long in lines of 64 characters, as it is stored; at most %d are taken", out.Len(), MaxRootsBytes), "keep the roots that are still used")
		return ""
	}
	return out.String()
}

// pemBlocks are the parts of a text that begin as a block of PEM, whether or not they
// are one: encoding/pem skips what it can't read, and a root must not be lost in
// silence.
func pemBlocks(text string) []string {
	var blocks []string
	for {
		begin := strings.Index(text, pemBegin)
		if begin < 0 {
			return blocks
		}
		text = text[begin:]
		end := len(text)
		if next := strings.Index(text[len(pemBegin):], pemBegin); next >= 0 {
			end = len(pemBegin) + next
		}
		blocks = append(blocks, text[:end])
		text = text[end:]
	}
}

// root reads one block, or says what is wrong with it.
func root(block string) (der []byte, what, fix string) {
	head, _, _ := strings.Cut(block, "\n")
	if strings.Contains(head, privateKey) {
		return nil, "is a private key, which everybody who can read the config store could now use",
			"take it out, replace the key where it came from, and write certificates only"
	}
	b, _ := pem.Decode([]byte(block))
	if b == nil {
		return nil, "is not PEM: its lines are broken, or its END is missing", "copy the whole block, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----"
	}
	if b.Type != certificate {
		return nil, "is no certificate", "write blocks of type CERTIFICATE only"
	}
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return nil, "is no certificate that can be read: " + strict.Shorten(err.Error()), "copy it again from where it came from"
	}
	if !c.BasicConstraintsValid || !c.IsCA {
		return nil, fmt.Sprintf("is not the certificate of an authority (CA) but of %q", strict.Shorten(c.Subject.String())), "write the root that signs the peer's certificates"
	}
	return b.Bytes, "", ""
}
