package settings

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/isthmus-mesh/isthmus/strict"
)

// TLS says how a server is checked, and who we are to it. The files are PEM.
type TLS struct {
	CA         string `yaml:"ca,omitempty" json:"ca,omitempty" file:""`     // roots that the server's certificate must chain to; the system's where empty
	Cert       string `yaml:"cert,omitempty" json:"cert,omitempty" file:""` // our certificate, where the server asks for one
	Key        string `yaml:"key,omitempty" json:"key,omitempty" file:""`   // and its private key
	ServerName string `yaml:"serverName,omitempty" json:"serverName,omitempty"`
}

// Check tells what is wrong without reading a file.
func (t *TLS) Check() error {
	if t != nil && (t.Cert == "") != (t.Key == "") {
		return &strict.Error{What: "cert and key go together", Fix: "name both files or none"}
	}
	return nil
}

// Client is the configuration of a client, nil for a nil TLS. The client's certificate
// is read again at every handshake; the roots are read once.
func (t *TLS) Client() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %s has no certificate in PEM", t.CA)
		}
	}
	if t.Cert == "" {
		return c, nil
	}
	if _, err := t.pair(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.pair() }
	return c, nil
}

func (t *TLS) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("cert and key: %w", err)
	}
	return &pair, nil
}
