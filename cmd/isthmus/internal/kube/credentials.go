package kube

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/transport"
)

// Credentials prove to others than the API server who the user of the kubeconfig is.
type Credentials struct {
	certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error) // nil: there is none
	wrapped     http.RoundTripper
}

// Credentials are the user's own: those that the kubeconfig has or names, or that its program
// makes, as those of EKS, AKS and GKE do.
func (c *Cluster) Credentials() (*Credentials, error) {
	if as := c.config.Impersonate.UserName; as != "" {
		return nil, fmt.Errorf("kubeconfig: context %s acts as %q (act-as), which only the API server can check; name a context without it", c.Context, as)
	}
	wire, err := c.config.TransportConfig()
	if err != nil {
		return nil, err
	}
	config, err := transport.TLSConfigFor(wire)
	if err != nil {
		return nil, err
	}
	of := &Credentials{}
	if config != nil {
		of.certificate = config.GetClientCertificate
	}
	of.wrapped, err = transport.HTTPWrappersForConfig(wire, headers{})
	return of, err
}

// Certificate is the client certificate; nil where the user has none.
func (c *Credentials) Certificate() (*tls.Certificate, error) {
	if c.certificate == nil {
		return nil, nil
	}
	certificate, err := c.certificate(&tls.CertificateRequestInfo{})
	if err != nil || certificate == nil || len(certificate.Certificate) == 0 {
		return nil, err
	}
	return certificate, nil
}

// Token is the bearer token as of now; empty where the user has none.
func (c *Credentials) Token() (string, error) {
	request, err := http.NewRequest(http.MethodGet, "https://nowhere.invalid/", nil)
	if err != nil {
		return "", err
	}
	_, err = c.wrapped.RoundTrip(request)
	var got found
	if !errors.As(err, &got) {
		return "", err
	}
	scheme, token, _ := strings.Cut(http.Header(got).Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", nil
	}
	return token, nil
}

// headers is where a request goes that is there for its headers alone: client-go adds a token to
// requests, wherever it has it from.
type headers struct{}

// RoundTrip is that of http.RoundTripper. Its error has the headers.
func (headers) RoundTrip(request *http.Request) (*http.Response, error) {
	return nil, found(request.Header)
}

type found http.Header

// Error is that of error.
func (found) Error() string { return "the request was not sent" }
