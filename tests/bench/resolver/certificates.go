package resolver

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Certificates is a directory with the certificates of apps.
type Certificates string

func (c Certificates) path(name string) string { return filepath.Join(string(c), name) }

// Issue makes a root, and the certificates of apps.
func (c Certificates) Issue(apps ...catalog.App) error {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return err
	}
	for _, app := range apps {
		cert, key, err := authority.Leaf("public", app)
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(c.path(app.ID+".crt"), cert, 0o600), os.WriteFile(c.path(app.ID+".key"), key, 0o600)); err != nil {
			return err
		}
	}
	return os.WriteFile(c.path("ca.crt"), authority.Anchors(), 0o600)
}

// Identity is how an app identifies itself: by its files, or not at all without any.
func (c Certificates) Identity(app catalog.App) identity.Config {
	if _, err := os.Stat(c.path("ca.crt")); err != nil {
		return identity.Config{Insecure: true}
	}
	return identity.Config{Files: &identity.Files{Cert: c.path(app.ID + ".crt"), Key: c.path(app.ID + ".key"), CA: c.path("ca.crt")}}
}
