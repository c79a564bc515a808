package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"go.uber.org/goleak"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/settings"
)

const (
	management = "11111111-2222-3333-4444-555555555555"
	wrongToken = "99999999-8888-7777-6666-555555555555"
)

// shared is the one Consul of all tests, with ACLs and TLS. Each test has a prefix of its
// own in it.
var shared struct {
	once   sync.Once
	err    error
	dir    string
	server *servers.Consul
	admin  *api.Client
	ca     string // file
	prefix atomic.Int64
}

// testMain ends the server before goroutines are counted.
type testMain struct{ *testing.M }

func (m testMain) Run() int {
	defer func() {
		if shared.server != nil {
			_ = shared.server.Kill()
		}
		if shared.dir != "" {
			_ = os.RemoveAll(shared.dir)
		}
	}()
	return m.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(testMain{m}) }

// consul starts the shared server, the first time.
func consul(t testing.TB) *servers.Consul {
	t.Helper()
	shared.once.Do(func() { shared.err = startShared() })
	if errors.Is(shared.err, sandbox.ErrNoBinary) && os.Getenv("ISTHMUS_REQUIRE_BINARIES") == "" {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

func startShared() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if shared.dir, err = os.MkdirTemp("", "isthmus-consul-"); err != nil {
		return err
	}
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return err
	}
	cert, key, err := authority.Server("127.0.0.1")
	if err != nil {
		return err
	}
	shared.ca = filepath.Join(shared.dir, "ca.pem")
	options := servers.ConsulOptions{Management: management, Cert: filepath.Join(shared.dir, "cert.pem"), Key: filepath.Join(shared.dir, "key.pem")}
	for path, text := range map[string][]byte{shared.ca: authority.Anchors(), options.Cert: cert, options.Key: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	if shared.server, err = servers.StartConsul(ctx, shared.dir, options); err != nil {
		return err
	}
	shared.admin, err = api.NewClient(&api.Config{Address: shared.server.Plain(), Scheme: "http", Token: management})
	return err
}

// place is one test's part of the shared server, by a link of its own.
type testPlace struct {
	server *servers.Consul
	link   *servers.Proxy
	prefix string
	token  string // that may write
}

func newPlace(t testing.TB) *testPlace {
	t.Helper()
	server := consul(t)
	link, err := servers.NewProxy(server.Plain())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	p := &testPlace{server: server, link: link, prefix: fmt.Sprintf("test-%d/", shared.prefix.Add(1))}
	p.token = newToken(t, fmt.Sprintf("key_prefix %q { policy = \"write\" }", p.prefix+isthmus.KeyPrefix))
	return p
}

// newToken makes a token with these rules.
func newToken(t testing.TB, rules string) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", shared.prefix.Add(1))
	if _, _, err := shared.admin.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		t.Fatalf("make a policy of %s: %v", rules, err)
	}
	token, _, err := shared.admin.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{Name: name}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return token.SecretID
}

// secret is a token in a file; the empty one is none.
func secret(t testing.TB, token string) *settings.Secret {
	t.Helper()
	if token == "" {
		return nil
	}
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &settings.Secret{File: path}
}

func (p *testPlace) config(t testing.TB, token string) Config {
	return Config{Address: "http://" + p.link.Addr(), Prefix: p.prefix, Token: secret(t, token)}
}

func mustOpen(t testing.TB, c Config, scope configstore.Scope) *Store {
	t.Helper()
	s, err := Open(c, scope, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens the store and closes it with the test.
func (p *testPlace) open(t testing.TB, token string) *Store {
	t.Helper()
	s := mustOpen(t, p.config(t, token), configstore.Scope{})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// put writes a key as others do; a nil value deletes it.
func (p *testPlace) put(t testing.TB, path string, value []byte) {
	t.Helper()
	var err error
	if value == nil {
		_, err = shared.admin.KV().Delete(p.prefix+path, nil)
	} else {
		_, err = shared.admin.KV().Put(&api.KVPair{Key: p.prefix + path, Value: value}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *testPlace) restart(t testing.TB, kill bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	end := p.server.Kill
	if !kill {
		end = func() error { return p.server.Stop(ctx) }
	}
	if err := errors.Join(end(), p.server.Start(ctx)); err != nil {
		t.Fatal(err)
	}
}

func (p *testPlace) rewind(t testing.TB) func() {
	t.Helper()
	body, _, err := shared.admin.Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	backup, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := shared.admin.Snapshot().Restore(nil, bytes.NewReader(backup)); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *testPlace) mend(t testing.TB) func() {
	return func() {
		if err := p.link.Mend(); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *testPlace) backend() storetest.Backend {
	base := p.prefix + isthmus.KeyPrefix
	with := func(rules string, args ...any) func(testing.TB) configstore.ReadWriter {
		return func(t testing.TB) configstore.ReadWriter {
			return mustOpen(t, p.config(t, newToken(t, fmt.Sprintf(rules, args...))), configstore.Scope{})
		}
	}
	return storetest.Backend{
		Open: func(t testing.TB) configstore.ReadWriter {
			return mustOpen(t, p.config(t, p.token), configstore.Scope{})
		},
		Shared: true,
		PutRaw: func(t testing.TB, _ configstore.ReadWriter, path string, value []byte) { p.put(t, path, value) },
		Fail: func(t testing.TB, _ configstore.ReadWriter) func() {
			p.link.Refuse()
			return p.mend(t)
		},
		Restart: p.restart,
		Cut: func(t testing.TB) func() {
			p.link.Drop()
			return p.mend(t)
		},
		Slow: func(t testing.TB, by time.Duration) func() {
			p.link.Delay(by)
			return p.mend(t)
		},
		Rewind: p.rewind,
		Denied: func(t testing.TB) configstore.ReadWriter {
			return mustOpen(t, p.config(t, wrongToken), configstore.Scope{})
		},
		Blind: func(t testing.TB, path string) configstore.ReadWriter {
			return with(`key_prefix %q { policy = "read" } key %q { policy = "deny" }`, base, p.prefix+path)(t)
		},
		Unwritable: with(`key_prefix %q { policy = "read" }`, base),
		WrongCA: func(t testing.TB) configstore.ReadWriter {
			c := p.config(t, p.token)
			c.Address, c.TLS = p.server.URL(), &settings.TLS{CA: otherCA(t)}
			return mustOpen(t, c, configstore.Scope{})
		},
		Scoped: func(t testing.TB, scope configstore.Scope) configstore.ReadWriter {
			rules := fmt.Sprintf(`key %q { policy = "read" } key_prefix %q { policy = "read" }`, p.prefix+isthmus.KeyPath(scope.Selection()), base+"Cluster/")
			return mustOpen(t, p.config(t, newToken(t, rules)), scope)
		},
		Servers:   []string{p.link.Addr(), p.server.Addr()},
		Secrets:   []string{p.token, management, wrongToken},
		MaxBatch:  MaxBatch,
		MaxObject: MaxObject,
	}
}

// otherCA is the file of an authority that has signed nothing here.
func otherCA(t testing.TB) string {
	t.Helper()
	other, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "other.pem")
	if err := os.WriteFile(path, other.Anchors(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend { return newPlace(t).backend() })
}

func TestSettingsThatAreWrongAreNamed(t *testing.T) {
	for _, c := range []struct {
		want string
		c    Config
	}{
		{`address: "consul:8500"`, Config{Address: "consul:8500"}},
		{`address: "ftp://a"`, Config{Address: "ftp://a"}},
		{"address: not a URL, or", Config{Address: "http://me:hunter2@127.0.0.1:8500"}},
		{"address: not a URL, or", Config{Address: "me:hunter2@127.0.0.1:8500"}},
		{"address: not a URL, or", Config{Address: "http://127.0.0.1:8500/?token=hunter2"}},
		{"tls: the address http://a", Config{Address: "http://a", TLS: &settings.TLS{}}},
		{"tls: ca:", Config{Address: "https://a", TLS: &settings.TLS{CA: "/nowhere"}}},
		{`prefix: "/a"`, Config{Prefix: "/a"}},
		{`prefix: "a//" is read by Consul as "a/"`, Config{Prefix: "a//"}},
		{`prefix: "a/../b/" is read by Consul as "b/"`, Config{Prefix: "a/../b/"}},
		{"token: want one of", Config{Token: &settings.Secret{}}},
	} {
		s, err := Open(c.c, configstore.Scope{}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: opened %v, %v; want an error with %q", c.c, s, err, c.want)
		}
	}
}

// policyOf is the one policy of a token.
func policyOf(t *testing.T, token string) *api.ACLPolicy {
	t.Helper()
	self, _, err := shared.admin.ACL().TokenReadSelf(&api.QueryOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	policy, _, err := shared.admin.ACL().PolicyRead(self.Policies[0].ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// revoke deletes a token.
func revoke(t *testing.T, token string) {
	t.Helper()
	self, _, err := shared.admin.ACL().TokenReadSelf(&api.QueryOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shared.admin.ACL().TokenDelete(self.AccessorID, nil); err != nil {
		t.Fatal(err)
	}
}

// forward passes connections to a socket on to an address, until the test ends.
func forward(t *testing.T, socket, address string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{}
	proxy.Transport = transport
	server := &http.Server{Handler: proxy}
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		<-done
		transport.CloseIdleConnections()
	})
}
