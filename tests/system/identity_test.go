package system

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/sandbox"
)

// certificate writes a certificate of an app by some authority, and the mesh's own
// roots.
func (m *mesh) certificate(t *testing.T, by *sandbox.Authority, app catalog.App) *identity.Files {
	t.Helper()
	cert, key, err := by.Leaf(sandbox.DefaultTrustDomain, app)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &identity.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	for path, text := range map[string][]byte{f.Cert: cert, f.Key: key, f.CA: m.authority.Anchors()} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}
