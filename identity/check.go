package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// CheckTLS returns the configuration of a handshake that finds out who a gateway leads to. It
// goes on with any certificate, so nothing secret may be sent on such a connection. It is nil
// when insecure.
func (s *Source) CheckTLS() *tls.Config {
	if s.Insecure() {
		return nil
	}
	return s.clientTLS(func(tls.ConnectionState) error { return nil })
}

// CheckPeer tells whose certificate a server has shown, as far as it has a SPIFFE ID of a Dapr
// app, and why it is not accepted as that of a cluster's resolver service.
func (s *Source) CheckPeer(cluster string, shown tls.ConnectionState) (ID, error) {
	var id ID
	if len(shown.PeerCertificates) > 0 {
		id, _ = idOf(shown.PeerCertificates[0])
	}
	return id, s.verifyService(cluster, shown.PeerCertificates, time.Now())
}

// ErrOtherSentry marks an error of [Source.CheckSentry]: somebody answers, and is not the Sentry
// that is configured.
var ErrOtherSentry = errors.New("another Sentry")

// CheckSentry connects to Sentry, if the identity is from there, and checks who answers. It asks
// for no certificate.
func (c *credential) CheckSentry(ctx context.Context) error {
	o, ok := c.origin.(*sentryOrigin)
	if !ok {
		return nil
	}
	anchors, _, err := o.anchors(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.cfg.Address)
	if err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	defer conn.Close()
	cfg := o.tls(anchors)
	cfg.NextProtos = []string{"h2"}
	verify := cfg.VerifyConnection
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verify(cs); err != nil {
			return fmt.Errorf("%w: %w", ErrOtherSentry, err)
		}
		return nil
	}
	if err := tls.Client(conn, cfg).HandshakeContext(ctx); err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	return nil
}

// HasSentry tells whether the identity is from Dapr's Sentry.
func (c *credential) HasSentry() bool {
	_, ok := c.origin.(*sentryOrigin)
	return ok
}
