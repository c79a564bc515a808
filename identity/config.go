package identity

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Config says where a process gets its identity: exactly one of files, sentry and insecure. Its
// fields have YAML and JSON tags for strict decoders.
type Config struct {
	Files    *Files  `yaml:"files,omitempty" json:"files,omitempty"`
	Sentry   *Sentry `yaml:"sentry,omitempty" json:"sentry,omitempty"`
	Insecure bool    `yaml:"insecure,omitempty" json:"insecure,omitempty"`
}

// Files names PEM files. They are read again when they change.
type Files struct {
	Cert string `yaml:"cert" json:"cert" file:""` // certificate and its intermediates, leaf first
	Key  string `yaml:"key" json:"key" file:""`   // its private key
	CA   string `yaml:"ca" json:"ca" file:""`     // roots that peers' certificates must chain to
}

// Sentry configures Dapr's Sentry as the source of certificates. An empty field has daprd's
// default: from the environment, or else built in.
type Sentry struct {
	Address string `yaml:"address" json:"address"` // host:port

	// TrustAnchors are roots in PEM. If it is empty, TrustAnchorsFile counts, which is read again
	// when it changes, or Anchors, or else DAPR_TRUST_ANCHORS in the environment.
	TrustAnchors     string  `yaml:"trustAnchors,omitempty" json:"trustAnchors,omitempty"`
	TrustAnchorsFile string  `yaml:"trustAnchorsFile,omitempty" json:"trustAnchorsFile,omitempty" file:""`
	Anchors          Anchors `yaml:"-" json:"-"`

	// TrustDomain and Namespace are the control plane's, not the app's.
	TrustDomain string `yaml:"trustDomain,omitempty" json:"trustDomain,omitempty"`
	Namespace   string `yaml:"namespace,omitempty" json:"namespace,omitempty"`

	// AppTrustDomain is the trust domain of the requested certificate; "public" if empty, as in
	// daprd. In Kubernetes, Sentry ignores it and uses that of the pod's Dapr Configuration.
	AppTrustDomain string `yaml:"appTrustDomain,omitempty" json:"appTrustDomain,omitempty"`

	// Token proves the app's identity to Sentry. If it is empty, TokenFile counts, which is read
	// for every request, or else the file in DAPR_SENTRY_TOKEN_FILE, or the token that Dapr
	// mounts in Kubernetes.
	Token     Secret `yaml:"token,omitempty" json:"token,omitempty"`
	TokenFile string `yaml:"tokenFile,omitempty" json:"tokenFile,omitempty" file:""`

	// Ask asks for certificates in place of a Sentry at Address; nil: that is asked. First is the first
	// one, for a program that has it already.
	Ask   func(ctx context.Context, csr []byte) ([]byte, error) `yaml:"-" json:"-"`
	First *Signed                                               `yaml:"-" json:"-"`

	// Keep is a directory of this user's in which the certificate and its key stay until it expires,
	// for a program that runs often and shortly; empty: nowhere.
	Keep string `yaml:"-" json:"-"`
}

// Signed is a certificate in PEM, leaf first, and its key.
type Signed struct {
	Certificate []byte
	Key         *ecdsa.PrivateKey
}

// Anchors are roots that somebody else keeps.
type Anchors interface {
	// Read returns them in PEM as they are now. It is called every few seconds.
	Read(ctx context.Context) ([]byte, error)
	// Run follows them until ctx ends; [Source.Run] runs it.
	Run(ctx context.Context)
	// String names the place in errors.
	String() string
}

// Secret is a text that is never printed.
type Secret string

// hidden replaces a secret in output.
const hidden = "[hidden]"

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Check checks the configuration. It considers the environment, as [New] does, and reads none of
// the configured files.
func (c Config) Check() error { return c.withDefaults(os.Getenv).check() }

func (c Config) check() error {
	var chosen []string
	if c.Files != nil {
		chosen = append(chosen, "files")
	}
	if c.Sentry != nil {
		chosen = append(chosen, "sentry")
	}
	if c.Insecure {
		chosen = append(chosen, "insecure")
	}
	switch {
	case len(chosen) == 0:
		return &strict.Error{What: "nothing configured", Fix: "write one of files, sentry and insecure: true (plain text)"}
	case len(chosen) > 1:
		return &strict.Error{What: strings.Join(chosen, " and ") + " exclude each other", Fix: "keep one"}
	case c.Files != nil:
		return c.Files.check()
	case c.Sentry != nil:
		return c.Sentry.check()
	}
	return nil
}

func (f *Files) check() error {
	var missing []string
	for _, field := range []struct{ name, value string }{{"cert", f.Cert}, {"key", f.Key}, {"ca", f.CA}} {
		if field.value == "" {
			missing = append(missing, field.name)
		}
	}
	if len(missing) > 0 {
		return &strict.Error{Path: "files", What: strings.Join(missing, " and ") + " missing", Fix: "name cert, key and ca"}
	}
	return nil
}

func (s *Sentry) check() error {
	if s.Address == "" {
		return &strict.Error{Path: "sentry.address", What: "is missing", Fix: `write host:port, such as "127.0.0.1:50001"`}
	}
	if _, port, err := net.SplitHostPort(s.Address); err != nil || port == "" {
		return &strict.Error{Path: "sentry.address", What: fmt.Sprintf("%q is no address", s.Address), Fix: `write host:port, such as "127.0.0.1:50001"`}
	}
	if s.TrustAnchors != "" && s.TrustAnchorsFile != "" {
		return &strict.Error{Path: "sentry", What: "trustAnchors and trustAnchorsFile exclude each other", Fix: "keep one"}
	}
	if s.TrustAnchors+s.TrustAnchorsFile != "" && s.Anchors != nil {
		return &strict.Error{Path: "sentry", What: "has trust anchors, which are also to be followed in " + s.Anchors.String(), Fix: "keep one"}
	}
	if s.TrustAnchors == "" && s.TrustAnchorsFile == "" && s.Anchors == nil {
		return &strict.Error{
			Path: "sentry.trustAnchors", What: "is missing",
			Fix: "write the text of Sentry's ca.crt, or its path as trustAnchorsFile, or set DAPR_TRUST_ANCHORS in the environment",
		}
	}
	if s.TrustAnchors != "" {
		if _, err := parseCertificates([]byte(s.TrustAnchors)); err != nil {
			return strict.Below("sentry.trustAnchors", err)
		}
	}
	if s.Token != "" && s.TokenFile != "" {
		return &strict.Error{Path: "sentry", What: "token and tokenFile exclude each other", Fix: "keep one"}
	}
	if _, err := spiffeid.TrustDomainFromString(s.AppTrustDomain); s.AppTrustDomain != "" && err != nil {
		return strict.Below("sentry.appTrustDomain", fmt.Errorf("%q: %w", s.AppTrustDomain, err))
	}
	if _, err := s.id(); err != nil {
		return strict.Below("sentry", fmt.Errorf("trustDomain %q and namespace %q: %w", s.TrustDomain, s.Namespace, err))
	}
	return nil
}

// kubernetesToken is where Dapr mounts the token for Sentry into a pod.
const kubernetesToken = "/var/run/secrets/dapr.io/sentrytoken/token"

// withDefaults fills empty fields with daprd's defaults.
func (c Config) withDefaults(getenv func(string) string) Config {
	if c.Sentry == nil {
		return c
	}
	s := *c.Sentry
	if s.TrustAnchors == "" && s.TrustAnchorsFile == "" && s.Anchors == nil {
		s.TrustAnchors = getenv("DAPR_TRUST_ANCHORS")
	}
	s.TrustDomain = cmp.Or(s.TrustDomain, getenv("DAPR_CONTROLPLANE_TRUST_DOMAIN"), "localhost")
	s.Namespace = cmp.Or(s.Namespace, getenv("DAPR_CONTROLPLANE_NAMESPACE"), "default")
	if s.Token == "" && s.TokenFile == "" {
		s.TokenFile = getenv("DAPR_SENTRY_TOKEN_FILE")
		if _, err := os.Stat(kubernetesToken); s.TokenFile == "" && err == nil {
			s.TokenFile = kubernetesToken
		}
	}
	c.Sentry = &s
	return c
}

// id is the identity that Sentry must present.
func (s *Sentry) id() (spiffeid.ID, error) { return s.controlPlane("dapr-sentry") }

// controlPlane is the identity of a part of Dapr's control plane.
func (s *Sentry) controlPlane(part string) (spiffeid.ID, error) {
	td, err := spiffeid.TrustDomainFromString(cmp.Or(s.TrustDomain, "localhost"))
	if err != nil {
		return spiffeid.ID{}, err
	}
	return spiffeid.FromSegments(td, "ns", cmp.Or(s.Namespace, "default"), part)
}

// Placement authorizes Dapr's placement service: of Sentry's trust domain and namespace, or, with
// files, which name no control plane, of any.
func (c Config) Placement() func(ID) error {
	const part = "dapr-placement"
	var want spiffeid.ID
	if c = c.withDefaults(os.Getenv); c.Sentry != nil {
		want, _ = c.Sentry.controlPlane(part) // Check has looked
	}
	return func(id ID) error {
		if id.App.ID != part || !want.IsZero() && id.String() != want.String() {
			return fmt.Errorf("it is %s; want %s", id, cmp.Or(want.String(), "an app-id "+part))
		}
		return nil
	}
}
