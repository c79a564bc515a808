package etcd

import (
	"io"
	"os"
	"testing"
)

// backup writes a backup of the server, as "etcdctl snapshot save" does.
func (p *testPlace) backup(t testing.TB, path string) {
	t.Helper()
	from, err := p.Admin.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}
