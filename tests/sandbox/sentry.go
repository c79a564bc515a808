package sandbox

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
)

// DefaultTrustDomain is the trust domain of a Sentry that is given none, as it is
// Dapr's own default.
const DefaultTrustDomain = "localhost"

// Sentry is a running certificate authority of one cluster.
type Sentry struct {
	*Process
	Address     string // host:port
	TrustDomain string
	Anchors     []byte // PEM of the root
	AnchorsFile string
}

// SentryOptions say how to run a Sentry. Clusters that are to trust each other share
// an Authority.
type SentryOptions struct {
	Cluster     string
	Authority   *Authority
	TrustDomain string // DefaultTrustDomain by default
	Host        string // where it listens; 127.0.0.1 by default
	// Lifetime is how long a certificate lasts, such as "1m"; Dapr's default where empty.
	Lifetime    string
	JWKS        string // that tokens are checked by; empty: nobody needs one
	Credentials string // directory with ca.crt, issuer.crt and issuer.key of the Authority; made by default
}

// sentryConfig switches mTLS on; all else is Dapr's default.
const sentryConfig = `apiVersion: dapr.io/v1alpha1
kind: Configuration
metadata: {name: daprsystem}
spec:
  mtls: {enabled: true%s}
`

func (o *SentryOptions) configuration() []byte {
	more := ""
	if o.Lifetime != "" {
		more = ", workloadCertTTL: " + o.Lifetime + ", allowedClockSkew: 1s"
	}
	if o.JWKS != "" {
		more += fmt.Sprintf(", tokenValidators: [{name: jwks, options: {source: '%s'}}]", o.JWKS)
	}
	return fmt.Appendf(nil, sentryConfig, more)
}

// Sentry starts Dapr's certificate authority for a cluster and waits until it is
// ready.
func (s *Sandbox) Sentry(ctx context.Context, o SentryOptions) (*Sentry, error) {
	binary, err := Binary("sentry")
	if err != nil {
		return nil, err
	}
	if o.TrustDomain == "" {
		o.TrustDomain = DefaultTrustDomain
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	name := "sentry-" + o.Cluster
	sentry := &Sentry{TrustDomain: o.TrustDomain, Anchors: o.Authority.Anchors()}
	config, err := s.sentryFiles(name, o, sentry)
	if err != nil {
		return nil, err
	}
	var port, health, metrics int
	if err := freePorts(&port, &health, &metrics); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	sentry.Address = net.JoinHostPort(o.Host, strconv.Itoa(port))
	sentry.Process, err = s.run(ctx, Command{
		Name: name, Path: binary, LogDir: s.dir, ReadyURL: "http://" + loopback(health) + "/healthz",
		Args: []string{
			"--config", config, "--issuer-credentials", filepath.Dir(sentry.AnchorsFile), "--trust-domain", o.TrustDomain,
			"--port", strconv.Itoa(port), "--listen-address", o.Host,
			"--healthz-port", strconv.Itoa(health), "--healthz-listen-address", "127.0.0.1",
			"--metrics-port", strconv.Itoa(metrics), "--metrics-listen-address", "127.0.0.1",
		},
	})
	if err != nil {
		return nil, err
	}
	return sentry, nil
}

// sentryFiles writes what a Sentry reads and returns the path of its configuration.
func (s *Sandbox) sentryFiles(name string, o SentryOptions, sentry *Sentry) (config string, err error) {
	if o.Credentials != "" {
		sentry.AnchorsFile = filepath.Join(o.Credentials, "ca.crt")
		return s.file(name+".yaml", o.configuration())
	}
	cert, key, err := o.Authority.Issuer(o.Cluster)
	if err != nil {
		return "", err
	}
	for file, content := range map[string][]byte{"issuer.crt": cert, "issuer.key": key} {
		if _, err := s.file(filepath.Join(name, file), content); err != nil {
			return "", err
		}
	}
	if sentry.AnchorsFile, err = s.file(filepath.Join(name, "ca.crt"), sentry.Anchors); err != nil {
		return "", err
	}
	return s.file(name+".yaml", o.configuration())
}

// AppTrustDomain is that of apps which ask for no other, as Dapr has it.
const AppTrustDomain = "public"

// appTrustDomain is that of the service and the operator beside a Sentry, or without one:
// Dapr's default, unless the Sentry has another trust domain than it would by default.
func (s *Sentry) appTrustDomain() string {
	if s == nil || s.TrustDomain == DefaultTrustDomain {
		return AppTrustDomain
	}
	return s.TrustDomain
}

// identity is how an app, or a service, has its certificate from a Sentry, for a configuration; without
// one it has none.
func (s *Sentry) identity() map[string]any {
	if s == nil {
		return map[string]any{"insecure": true}
	}
	return map[string]any{"sentry": map[string]any{
		"address": s.Address, "trustAnchorsFile": s.AnchorsFile, "trustDomain": s.TrustDomain, "appTrustDomain": s.appTrustDomain(),
	}}
}
