package settings

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// TLS says how a server is checked, and who we are to it. The files are PEM.
type TLS struct {
	CA         string `yaml:"ca,omitempty" json:"ca,omitempty" file:""`     // roots that the server's certificate must chain to; the system's where empty
	Cert       string `yaml:"cert,omitempty" json:"cert,omitempty" file:""` // our certificate, where the server asks for one
	Key        string `yaml:"key,omitempty" json:"key,omitempty" file:""`   // and its private key
	ServerName string `yaml:"serverName,omitempty" json:"serverName,omitempty"`
}

// Check returns the mistakes that show without reading a file.
func (t *TLS) Check() error {
	if t != nil && (t.Cert == "") != (t.Key == "") {
		return &strict.Error{What: "cert and key go together", Fix: "name both files or none"}
	}
	return nil
}

// Client is the side of a client, by the files as they are at each handshake.
type Client struct{ followed *Followed[*client] }

// client is a configuration with the files that it was made of.
type client struct {
	texts  [3]string
	config *tls.Config
}

// Client reads the files; it is nil for a nil TLS.
func (t *TLS) Client() (*Client, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	followed, err := Follow(0, t.load)
	if err != nil {
		return nil, err
	}
	return &Client{followed}, nil
}

func (t *TLS) load(old *client) (*client, error) {
	now := &client{}
	for i, path := range []string{t.CA, t.Cert, t.Key} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", []string{"ca", "cert and key", "cert and key"}[i], err)
		}
		now.texts[i] = string(text)
	}
	if old != nil && old.texts == now.texts {
		return old, nil
	}
	now.config = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		now.config.RootCAs = x509.NewCertPool()
		if !now.config.RootCAs.AppendCertsFromPEM([]byte(now.texts[0])) {
			return nil, fmt.Errorf("ca: %s has no certificate in PEM", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(now.texts[1]), []byte(now.texts[2]))
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		now.config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return now, nil
}

// Config is the configuration for a handshake now, which is nobody's to change; nil for a nil
// Client.
func (c *Client) Config() *tls.Config {
	if c == nil {
		return nil
	}
	return c.followed.Get().config
}

// Dialing is DialTLSContext of an http.Transport by way of its DialContext; nil for a nil Client.
func (c *Client) Dialing(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	if c == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := c.Config()
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			config = config.Clone()
			config.ServerName = host
		}
		conn := tls.Client(plain, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = plain.Close()
			return nil, err
		}
		return conn, nil
	}
}
