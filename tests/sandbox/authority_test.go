package sandbox

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"
)

func TestAuthorityCertificates(t *testing.T) {
	authority, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	parse := func(cert, key []byte, err error) *x509.Certificate {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	server := parse(authority.Server("127.0.0.1", "localhost"))
	client := parse(authority.Client("isthmus", "system:masters"))
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Anchors()) || !others.AppendCertsFromPEM(other.Anchors()) {
		t.Fatal("the anchors are no certificates")
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if _, err := server.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
			t.Errorf("the server's certificate for %s: %v", host, err)
		}
	}
	for what, o := range map[string]x509.VerifyOptions{
		"another host":      {DNSName: "example.com", Roots: roots},
		"another authority": {DNSName: "localhost", Roots: others},
	} {
		if _, err := server.Verify(o); err == nil {
			t.Errorf("the server's certificate holds for %s", what)
		}
	}
	if _, err := client.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if client.Subject.CommonName != "isthmus" || !slices.Equal(client.Subject.Organization, []string{"system:masters"}) {
		t.Errorf("the client's certificate is for %s", client.Subject)
	}
}
