package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
)

// renewKeptWithin is how long Sentry has to renew a certificate that still counts.
const renewKeptWithin = 2 * time.Second

// requestOrCached is request for a program that keeps its certificate, [Sentry.Keep]: it asks Sentry
// once half of the validity has passed, and goes by what it has while Sentry does not answer.
func (o *sentryOrigin) requestOrCached(ctx context.Context, anchors roots, from [32]byte) (*material, error) {
	if o.cfg.Keep == "" {
		return o.request(ctx, anchors)
	}
	path, now := o.cachePath(from), time.Now()
	kept := o.readCached(path, anchors, now)
	if kept != nil {
		from := kept.cert.Leaf.NotBefore
		if now.Before(from.Add(kept.ends.NotAfter.Sub(from) / 2)) {
			return kept, nil
		}
		limited, cancel := context.WithTimeout(ctx, renewKeptWithin)
		defer cancel()
		ctx = limited
	}
	m, err := o.request(ctx, anchors)
	if err != nil && kept != nil {
		return kept, nil
	}
	if err == nil {
		writeCached(path, m)
	}
	return m, err
}

// cachePath has another name for each authority, and each certificate of it.
func (o *sentryOrigin) cachePath(anchors [32]byte) string {
	told := strings.Join([]string{o.cfg.Address, o.cfg.TrustDomain, o.cfg.Namespace, o.cfg.AppTrustDomain, o.app.String()}, "\n")
	sum := sha256.Sum256(append(anchors[:], told...))
	return filepath.Join(o.cfg.Keep, hex.EncodeToString(sum[:16])+".pem")
}

// readCached returns what the file has, if it still counts and nobody else could have read or
// written it; otherwise nil.
func (o *sentryOrigin) readCached(path string, anchors roots, now time.Time) *material {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || atomicfile.CheckOwner(info, os.Geteuid(), 0o077) != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil
	}
	cert, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil
	}
	chain := make([]*x509.Certificate, len(cert.Certificate))
	for i, der := range cert.Certificate {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil
		}
	}
	if _, _, err := x509svid.Verify(chain, anchors); err != nil {
		return nil
	}
	m, err := newMaterial(&cert, anchors)
	if err != nil || m.check(o.app, now) != nil {
		return nil
	}
	return m
}

// writeCached keeps a certificate and its key. A program that can't keep them asks again next time.
func writeCached(path string, m *material) {
	key, ok := m.cert.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	_ = atomicfile.Write(path, func(w io.Writer) error {
		if err := pem.Encode(w, &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}); err != nil {
			return fmt.Errorf("keep the key: %w", err)
		}
		for _, c := range m.cert.Certificate {
			if err := pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: c}); err != nil {
				return fmt.Errorf("keep the certificate: %w", err)
			}
		}
		return nil
	})
}
