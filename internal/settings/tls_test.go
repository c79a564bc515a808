package settings

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// files writes PEM files and returns their paths.
func files(t *testing.T, texts ...[]byte) []string {
	t.Helper()
	dir := t.TempDir()
	paths := make([]string, len(texts))
	for i, text := range texts {
		paths[i] = filepath.Join(dir, string(rune('a'+i))+".pem")
		if err := os.WriteFile(paths[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func authority(t *testing.T) *sandbox.Authority {
	t.Helper()
	ca, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// greet makes one handshake with a server that asks for a certificate of a user, and
// returns whom the server saw.
func greet(t *testing.T, client *tls.Config, ca *sandbox.Authority) (user string, err error) {
	t.Helper()
	cert, key, err := ca.Server("store.example", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	users := x509.NewCertPool()
	users.AppendCertsFromPEM(ca.Anchors())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: users})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan string, 1)
	go func() {
		defer close(seen)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if server := conn.(*tls.Conn); server.Handshake() == nil {
			seen <- server.ConnectionState().PeerCertificates[0].Subject.CommonName
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if client.ServerName == "" {
		client = client.Clone()
		client.ServerName = "127.0.0.1" // as whoever dials by address does
	}
	err = tls.Client(conn, client).Handshake()
	conn.Close()
	return <-seen, err
}

func TestTheServerIsCheckedAndSeesUs(t *testing.T) {
	ca, other := authority(t), authority(t)
	cert, key, err := ca.Client("isthmus")
	if err != nil {
		t.Fatal(err)
	}
	paths := files(t, ca.Anchors(), cert, key, other.Anchors())
	for _, c := range []struct {
		what string
		tls  TLS
		want string // in the error
	}{
		{"by its address", TLS{CA: paths[0], Cert: paths[1], Key: paths[2]}, ""},
		{"by its name", TLS{CA: paths[0], Cert: paths[1], Key: paths[2], ServerName: "store.example"}, ""},
		{"by another name", TLS{CA: paths[0], Cert: paths[1], Key: paths[2], ServerName: "other.example"}, "not other.example"},
		{"by another root", TLS{CA: paths[3], Cert: paths[1], Key: paths[2]}, "unknown authority"},
		{"by the system's roots", TLS{Cert: paths[1], Key: paths[2]}, "unknown authority"},
	} {
		client, err := c.tls.Client()
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		user, err := greet(t, client.Config(), ca)
		if c.want == "" && (err != nil || user != "isthmus") {
			t.Errorf("%s: the server saw %q, %v", c.what, user, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

func TestOurCertificateIsReadAtEveryHandshake(t *testing.T) {
	ca := authority(t)
	cert, key, err := ca.Client("old")
	if err != nil {
		t.Fatal(err)
	}
	paths := files(t, ca.Anchors(), cert, key)
	client, err := (&TLS{CA: paths[0], Cert: paths[1], Key: paths[2]}).Client()
	if err != nil {
		t.Fatal(err)
	}
	if user, err := greet(t, client.Config(), ca); user != "old" || err != nil {
		t.Errorf("the server saw %q, %v", user, err)
	}
	if cert, key, err = ca.Client("new"); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string][]byte{paths[1]: cert, paths[2]: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if user, err := greet(t, client.Config(), ca); user != "new" || err != nil {
		t.Errorf("after it was rotated the server saw %q, %v", user, err)
	}
}

func TestMistakesInTLS(t *testing.T) {
	ca := authority(t)
	cert, key, err := ca.Client("isthmus")
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := ca.Client("other")
	if err != nil {
		t.Fatal(err)
	}
	paths := files(t, cert, key, otherKey, []byte("no PEM"))
	for _, c := range []struct {
		what, want string
		tls        TLS
		check      bool // says so without reading a file
	}{
		{"no key", "cert and key go together; name both files or none", TLS{Cert: paths[0]}, true},
		{"no certificate", "cert and key go together", TLS{Key: paths[1]}, true},
		{"no such roots", "ca: open /nowhere/ca.pem: no such file", TLS{CA: "/nowhere/ca.pem"}, false},
		{"roots that are none", "ca: " + paths[3] + " has no certificate in PEM", TLS{CA: paths[3]}, false},
		{"another's key", "cert and key: tls: private key does not match public key", TLS{Cert: paths[0], Key: paths[2]}, false},
		{"no such certificate", "cert and key: open /nowhere/cert.pem", TLS{Cert: "/nowhere/cert.pem", Key: paths[1]}, false},
	} {
		if got, err := c.tls.Client(); err == nil || got != nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if err := c.tls.Check(); (err != nil) != c.check {
			t.Errorf("%s: the check says %v", c.what, err)
		}
	}
	var none *TLS
	if got, err := none.Client(); got != nil || err != nil || none.Check() != nil {
		t.Errorf("no TLS: %v, %v", got, err)
	}
}
