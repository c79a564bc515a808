package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Anyone authorizes every app whose certificate chains to our roots.
func Anyone(ID) error { return nil }

// OneOf authorizes the given apps, in any trust domain.
func OneOf(apps ...catalog.App) func(ID) error {
	names := make([]string, len(apps))
	for i, app := range apps {
		names[i] = app.String()
	}
	want := strings.Join(names, " or ")
	return func(id ID) error {
		if slices.Contains(apps, id.App) {
			return nil
		}
		return fmt.Errorf("it is app %s; want %s", id.App, want)
	}
}

// ServerTLS is the configuration of a server. It presents this process' certificate and requires
// a client certificate that chains to our roots, is for clients and names one app. authorize
// decides about that app; its error goes to the log. A nil authorize refuses everybody. ServerTLS
// returns nil when insecure.
func (s *Source) ServerTLS(authorize func(ID) error) *tls.Config {
	if s.Insecure() {
		return nil
	}
	return s.serverTLS(func(cs tls.ConnectionState) error {
		_, err := s.verify(cs, ofClient, authorize)
		return err
	})
}

func (s *Source) serverTLS(verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAnyClientCert, // VerifyConnection does the verifying
		// Connections are few and long. In each, the client proves anew that it has its key.
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate() },
		VerifyConnection: func(cs tls.ConnectionState) error {
			err := verify(cs)
			if err != nil {
				s.refusals.Warn("", "refused a client connection", "err", err)
			}
			return err
		},
	}
}

// ClientTLS is the configuration of a client. It presents this process' certificate and requires
// a server certificate that chains to our roots and names one app. expect decides about that app;
// a nil expect refuses everybody. The SPIFFE ID counts, not the host name. ClientTLS returns nil
// when insecure.
func (s *Source) ClientTLS(expect func(ID) error) *tls.Config {
	if s.Insecure() {
		return nil
	}
	return s.clientTLS(func(cs tls.ConnectionState) error {
		_, err := s.verify(cs, ofServer, expect)
		return err
	})
}

// ClientTLSBelow is [Source.ClientTLS] for a server below other roots than ours, in PEM.
func (s *Source) ClientTLSBelow(anchors []byte, expect func(ID) error) (*tls.Config, error) {
	below, err := parseCertificates(anchors)
	if err != nil {
		return nil, err
	}
	return s.clientTLS(func(cs tls.ConnectionState) error {
		_, err := verifyPeer(cs, time.Now(), below, ofServer, expect)
		return err
	}), nil
}

func (s *Source) clientTLS(verify func(tls.ConnectionState) error) *tls.Config {
	// Without a cache, no session is resumed.
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		InsecureSkipVerify:   true, // replaced by VerifyConnection
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.certificate() },
		VerifyConnection:     verify,
	}
}

func (s *Source) certificate() (*tls.Certificate, error) {
	m, err := s.usable()
	if err != nil {
		return nil, err
	}
	return m.cert, nil
}

// verify checks the other end of a connection and returns its identity.
func (s *Source) verify(cs tls.ConnectionState, use x509.ExtKeyUsage, authorize func(ID) error) (ID, error) {
	m, err := s.usable()
	if err != nil {
		return ID{}, err
	}
	return verifyPeer(cs, time.Now(), m.roots, use, authorize)
}

// errNoAuthorize is the error of a server or client without an authorize function.
var errNoAuthorize = errors.New("identity: every connection is refused: no authorize function was given")

func verifyPeer(cs tls.ConnectionState, at time.Time, r roots, use x509.ExtKeyUsage, authorize func(ID) error) (ID, error) {
	spiffe, err := verifyChain(cs.PeerCertificates, r, at, use)
	if err != nil {
		if !spiffe.IsZero() {
			return ID{}, fmt.Errorf("identity: peer that claims to be %s: %w", spiffe, err)
		}
		return ID{}, fmt.Errorf("identity: peer: %w", err)
	}
	id, err := FromSPIFFE(spiffe)
	if err != nil {
		return ID{}, fmt.Errorf("identity: peer: %w", err)
	}
	if authorize == nil {
		return ID{}, errNoAuthorize
	}
	if err := authorize(id); err != nil {
		return ID{}, fmt.Errorf("identity: peer %s refused: %w", id, err)
	}
	return id, nil
}
