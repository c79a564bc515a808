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

// Anyone lets in every app whose certificate chains to our roots.
func Anyone(ID) error { return nil }

// OneOf lets in the apps given, in any trust domain.
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

// ServerTLS is a configuration for servers: it shows this process' certificate and
// demands one from clients that chains to our roots, is for clients, names one app, and is let
// in by authorize, whose error goes to the log. It is nil when insecure. A nil authorize
// lets in nobody.
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
		// Connections are few and long. Each proves anew that the client has its key.
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate() },
		VerifyConnection: func(cs tls.ConnectionState) error {
			err := verify(cs)
			if err != nil {
				s.refusals.Warn("", "refused a client", "err", err)
			}
			return err
		},
	}
}

// ClientTLS is a configuration for clients: it shows this process' certificate and
// demands one from the server that chains to our roots, names one app, and is the
// one that expect wants. Host names are not checked: the SPIFFE ID is what counts.
// It is nil when insecure. A nil expect accepts nobody.
func (s *Source) ClientTLS(expect func(ID) error) *tls.Config {
	if s.Insecure() {
		return nil
	}
	return s.clientTLS(func(cs tls.ConnectionState) error {
		_, err := s.verify(cs, ofServer, expect)
		return err
	})
}

func (s *Source) clientTLS(verify func(tls.ConnectionState) error) *tls.Config {
	// No session is resumed: there is no cache of them.
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

// verify checks the other end of a connection and returns who it is.
func (s *Source) verify(cs tls.ConnectionState, use x509.ExtKeyUsage, authorize func(ID) error) (ID, error) {
	m, err := s.usable()
	if err != nil {
		return ID{}, err
	}
	return verifyPeer(cs, time.Now(), m.roots, use, authorize)
}

// errNobody is the error of a server or client that was made wrong.
var errNoAuthorize = errors.New("identity: nobody is let in: no authorization was given")

func verifyPeer(cs tls.ConnectionState, at time.Time, r roots, use x509.ExtKeyUsage, authorize func(ID) error) (ID, error) {
	spiffe, err := verifyChain(cs.PeerCertificates, r, at, use)
	if err != nil {
		if !spiffe.IsZero() {
			return ID{}, fmt.Errorf("identity: peer that claims to be %s: %w", spiffe, err)
		}
		return ID{}, fmt.Errorf("identity: peer: %w", err)
	}
	id, err := fromSPIFFE(spiffe)
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
