package xds

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// The certificates that docs/how-to/xds.md has openssl make, below the root of docs/how-to/trust.md,
// do for a client and for xds.tls.
func TestCertificatesOfThePage(t *testing.T) {
	t.Parallel()
	openssl := programstest.Path(t, "openssl")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	script := append(example(t, "../../docs/how-to/trust.md", "sh", "issuer.ext"), example(t, page, "sh", "certificate()")...)
	cmd := exec.CommandContext(t.Context(), "sh", "-e")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(script)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(openssl)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	authority, err := sandbox.ReadAuthority(at("root.crt"), at("root.key"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := tls.LoadX509KeyPair(at("isthmus.crt"), at("isthmus.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots, issuers := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Anchors())
	issuer, err := x509.ParseCertificate(server.Certificate[1])
	if err != nil {
		t.Fatal(err)
	}
	issuers.AddCert(issuer)
	if _, err := server.Leaf.Verify(x509.VerifyOptions{DNSName: "isthmus.mesh.example", Roots: roots, Intermediates: issuers}); err != nil {
		t.Error(err)
	}

	m := startBelow(t, authority)
	for from, to := range map[string]string{"checkout.crt": "client/tls.crt", "checkout.key": "client/tls.key", "root.crt": "client/ca.crt"} {
		text, err := os.ReadFile(at(from))
		if err != nil {
			t.Fatal(err)
		}
		m.file(to, text)
	}
	local := m.server(orders)
	m.apply(m.west, m.selection("app: orders"), instance(orders, "west-1", local))
	m.from(m.dial(example(t, page, "json", "xds_servers", "isthmus.mesh.example:7410", m.xds, "/certs/", filepath.Join(m.dir, "client")+"/"), "xds:///orders.shop"), local)
}
