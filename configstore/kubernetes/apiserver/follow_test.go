package apiserver

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/settings/settingstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// witness is an API server that answers with who it is, and who asks.
type witness struct {
	*httptest.Server
	watching chan string // who opened a watch
}

func newWitness(t *testing.T, name string, ca *sandbox.Authority) *witness {
	w := &witness{watching: make(chan string, 100)}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		who := name + " " + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if len(r.TLS.PeerCertificates) > 0 {
			who += r.TLS.PeerCertificates[0].Subject.CommonName
		}
		if r.URL.Query().Has("watch") {
			answer.WriteHeader(http.StatusOK)
			answer.(http.Flusher).Flush()
			w.watching <- who
			<-r.Context().Done()
			return
		}
		fmt.Fprint(answer, who)
	}))
	cert, key, err := ca.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	w.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	w.StartTLS()
	t.Cleanup(w.Close)
	return w
}

// TestCredentialsAreFollowed changes each part of a kubeconfig by each way in which files are
// replaced. An open watch goes on by the new one, and a broken file changes nothing.
func TestCredentialsAreFollowed(t *testing.T) {
	lookEvery = 10 * time.Millisecond
	t.Cleanup(func() { lookEvery = time.Second })
	authorities := [2]*sandbox.Authority{newAuthority(t), newAuthority(t)}
	servers := [2]*witness{newWitness(t, "first", authorities[0]), newWitness(t, "second", authorities[1])}
	both := string(authorities[0].Anchors()) + string(authorities[1].Anchors())
	data := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	// config is a kubeconfig with some fields of its cluster and user.
	config := func(server int, ca, user string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
			"clusters: [{name: c, cluster: {server: %q, %s}}]\nusers: [{name: u, user: %s}]\n", servers[server].URL, ca, user)
	}
	inline := "certificate-authority-data: " + data(both)
	pair := func(name string) (string, string) {
		cert, key, err := authorities[0].Client(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(cert), string(key)
	}
	oneCert, oneKey := pair("one")
	twoCert, twoKey := pair("two")
	program := func(token string) string {
		return fmt.Sprintf(`{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: echo, args: ['{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":%q}}']}}`, token)
	}
	for what, c := range map[string]struct {
		old, now map[string]string // the texts of files
		want     [2]string
		broken   string // the file that is broken then
	}{
		"inline token": {
			map[string]string{"config": config(0, inline, "{token: one}")}, map[string]string{"config": config(0, inline, "{token: two}")},
			[2]string{"first one", "first two"}, "config",
		},
		"token file": {
			map[string]string{"config": config(0, inline, "{tokenFile: token}"), "token": "one\n"}, map[string]string{"token": "two\n"},
			[2]string{"first one", "first two"}, "token",
		},
		"inline certificate": {
			map[string]string{"config": config(0, inline, fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}", data(oneCert), data(oneKey)))},
			map[string]string{"config": config(0, inline, fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}", data(twoCert), data(twoKey)))},
			[2]string{"first one", "first two"}, "config",
		},
		"certificate files": {
			map[string]string{"config": config(0, inline, "{client-certificate: cert, client-key: key}"), "cert": oneCert, "key": oneKey},
			map[string]string{"cert": twoCert, "key": twoKey},
			[2]string{"first one", "first two"}, "key",
		},
		"inline authority and server": {
			map[string]string{"config": config(0, "certificate-authority-data: "+data(string(authorities[0].Anchors())), "{token: one}")},
			map[string]string{"config": config(1, "certificate-authority-data: "+data(string(authorities[1].Anchors())), "{token: one}")},
			[2]string{"first one", "second one"}, "config",
		},
		"authority's file, then server": {
			map[string]string{"config": config(0, "certificate-authority: ca", "{token: one}"), "ca": string(authorities[0].Anchors())},
			map[string]string{"ca": string(authorities[1].Anchors()), "config": config(1, "certificate-authority: ca", "{token: one}")},
			[2]string{"first one", "second one"}, "ca",
		},
		"program": {
			map[string]string{"config": config(0, inline, program("one"))}, map[string]string{"config": config(0, inline, program("two"))},
			[2]string{"first one", "first two"}, "config",
		},
	} {
		for way, write := range settingstest.Ways {
			t.Run(what+", "+way, func(t *testing.T) {
				dir := t.TempDir()
				write(t, dir, c.old)
				a, err := New(Config{Kubeconfig: filepath.Join(dir, "config")})
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				awaitAnswer(t, a, c.want[0])
				watched := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { watched <- a.Follow(ctx, Collection{Path: "/"}, "1", Follower{}) }()
				if who := <-servers[0].watching; who != c.want[0] {
					t.Errorf("the watch is by %q", who)
				}
				write(t, dir, c.now)
				awaitAnswer(t, a, c.want[1])
				server := servers[0]
				if strings.HasPrefix(c.want[1], "second") {
					server = servers[1]
				}
				if who := <-server.watching; who != c.want[1] {
					t.Errorf("then the watch is by %q", who)
				}
				for _, text := range []string{"", "-----BEGIN nonsense"} {
					if text != "" && c.broken == "token" {
						continue // nothing tells it from a token
					}
					write(t, dir, map[string]string{c.broken: text})
					if (Config{Kubeconfig: filepath.Join(dir, "config")}).Look() == nil {
						t.Errorf("nobody is told that %s is broken", c.broken)
					}
					awaitAnswer(t, a, c.want[1])
				}
				cancel()
				if err := <-watched; !errors.Is(err, context.Canceled) {
					t.Errorf("the watch ended with %v", err)
				}
			})
		}
	}
}

func newAuthority(t *testing.T) *sandbox.Authority {
	ca, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// awaitAnswer asks until the server says this.
func awaitAnswer(t *testing.T, a *Server, want string) {
	t.Helper()
	var text []byte
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(lookEvery) {
		if text, err = a.Call(t.Context(), Request{Path: "/"}); err == nil && string(text) == want {
			return
		}
	}
	t.Fatalf("answered %q, %v; want %q", text, err, want)
}
