package serverstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// certificate is that of a server on this machine: files in PEM.
type certificate struct {
	ca        string // of the authority that signed it
	cert, key string
}

// certify makes an authority, and a certificate of it in a directory.
func certify(dir string) (c certificate, err error) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return c, err
	}
	cert, key, err := authority.Server("127.0.0.1")
	if err != nil {
		return c, err
	}
	c = certificate{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	for path, text := range map[string][]byte{c.ca: authority.Anchors(), c.cert: cert, c.key: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return c, err
		}
	}
	return c, nil
}

// OtherCA is the file of an authority that has signed nothing.
func OtherCA(t testing.TB) string {
	t.Helper()
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "other.pem")
	if err := os.WriteFile(path, authority.Anchors(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
