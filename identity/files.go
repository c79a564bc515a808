package identity

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// maxFile bounds a file, in case the path names the wrong one.
const maxFile = 1 << 20

// filesOrigin reads three small files. It compares their bytes instead of watching them. That
// works for renames, for the symlink swaps of Kubernetes mounts and for network file systems, and
// costs microseconds.
type filesOrigin struct {
	files  Files
	log    *slog.Logger
	looked [32]byte // fingerprint of the files that were last checked against our own roots
}

func (o *filesOrigin) String() string { return "files " + o.files.Cert }

func (o *filesOrigin) load(_ context.Context, old *material) (*material, error) {
	var texts [3][]byte
	fingerprint := sha256.New()
	for i, path := range []string{o.files.Cert, o.files.Key, o.files.CA} {
		text, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts[i] = text
		fingerprint.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		fingerprint.Write(text)
	}
	from := [32]byte(fingerprint.Sum(nil))
	if old != nil && old.from == from {
		return old, nil
	}
	m, err := o.parse(texts)
	if err != nil {
		return nil, err
	}
	m.from = from
	if o.looked != from && m.valid(time.Now()) == nil { // refused files are read again and again
		o.looked = from
		o.warnForeign(m)
	}
	return m, nil
}

func (o *filesOrigin) parse(texts [3][]byte) (*material, error) {
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("%s with key %s: %w", o.files.Cert, o.files.Key, err)
	}
	if cert.Leaf == nil { // GODEBUG=x509keypairleaf=0
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", o.files.Cert, err)
		}
	}
	cas, err := parseCertificates(texts[2])
	if err != nil {
		return nil, fmt.Errorf("ca %s: %w", o.files.CA, err)
	}
	return newMaterial(&cert, cas)
}

// warnForeign warns if our certificate does not chain to our own roots. That is no error: peers
// may have other roots, also during a change of roots.
func (o *filesOrigin) warnForeign(m *material) {
	if len(m.vouching) == 0 {
		o.log.Warn("certificate does not chain to the configured roots; peers with the same roots will refuse it",
			"cert", o.files.Cert, "ca", o.files.CA)
	}
}

// ReadFile reads a small file, such as a certificate. Its errors name the path.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s: %s of %d bytes; want a file of at most %d", path, info.Mode().Type(), info.Size(), maxFile)
	}
	return os.ReadFile(path)
}
