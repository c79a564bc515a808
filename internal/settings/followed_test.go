package settings_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/settings/settingstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// TestCredentialsAreFollowed replaces each file by each way, and then breaks it: the one of before
// stays in use, and Look, or a new Client, says what is wrong.
func TestCredentialsAreFollowed(t *testing.T) {
	one, two := authority(t), authority(t)
	pair := func(ca *sandbox.Authority, name string) (string, string) {
		cert, key, err := ca.Client(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(cert), string(key)
	}
	oldCert, oldKey := pair(one, "old")
	newCert, newKey := pair(one, "new")
	for way, write := range settingstest.Ways {
		t.Run("a secret "+way, func(t *testing.T) {
			dir := t.TempDir()
			secret := &settings.Secret{File: filepath.Join(dir, "token")}
			for _, text := range []string{"old", "new"} {
				write(t, dir, map[string]string{"token": text + "\n"})
				if got, err := secret.Read(); got != text || err != nil || secret.Look() != nil {
					t.Errorf("read %q, %v; want %q", got, err, text)
				}
			}
			write(t, dir, map[string]string{"token": ""})
			if got, err := secret.Read(); got != "new" || err != nil || secret.Look() == nil {
				t.Errorf("an empty file: read %q, %v; %v", got, err, secret.Look())
			}
			if err := os.Remove(secret.File); err != nil {
				t.Fatal(err)
			}
			if got, err := secret.Read(); got != "new" || err != nil || secret.Look() == nil {
				t.Errorf("without the file: read %q, %v; %v", got, err, secret.Look())
			}
			write(t, dir, map[string]string{"token": "newest"})
			if got, err := secret.Read(); got != "newest" || err != nil {
				t.Errorf("read %q, %v after it was mended", got, err)
			}
		})
		t.Run("TLS "+way, func(t *testing.T) {
			dir := t.TempDir()
			files := settings.TLS{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
			write(t, dir, map[string]string{"ca": string(one.Anchors()), "cert": oldCert, "key": oldKey})
			client, err := files.Client()
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				what  string
				texts map[string]string
				to    *sandbox.Authority // whose server is met
				want  string             // whom it sees; empty: we refuse it
			}{
				{"at first", nil, one, "old"},
				{"another's server", nil, two, ""},
				{"a new pair", map[string]string{"cert": newCert, "key": newKey}, one, "new"},
				{"half a pair", map[string]string{"cert": oldCert}, one, "new"},
				{"a broken authority", map[string]string{"cert": newCert, "ca": "nonsense"}, one, "new"},
				{"another authority", map[string]string{"ca": string(two.Anchors())}, two, "new"},
				{"the former one's server", nil, one, ""},
				{"an empty key", map[string]string{"key": ""}, two, "new"},
			} {
				write(t, dir, step.texts)
				if got := seen(t, client, step.to); got != step.want {
					t.Errorf("%s: the server saw %q, want %q", step.what, got, step.want)
				}
			}
			if _, err := files.Client(); err == nil {
				t.Error("a broken key is no error at the start")
			}
		})
	}
}

func authority(t *testing.T) *sandbox.Authority {
	ca, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// seen is whom a server with a certificate of ca sees, if the client takes it.
func seen(t *testing.T, client *settings.Client, ca *sandbox.Authority) string {
	t.Helper()
	cert, key, err := ca.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	who := make(chan string, 1)
	go func() {
		defer close(who)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if server := conn.(*tls.Conn); server.Handshake() == nil && len(server.ConnectionState().PeerCertificates) > 0 {
			who <- server.ConnectionState().PeerCertificates[0].Subject.CommonName
		}
	}()
	conn, err := client.Dialing((&net.Dialer{}).DialContext)(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		l.Close()
		<-who
		return ""
	}
	defer conn.Close()
	return <-who
}
