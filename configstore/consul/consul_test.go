package consul

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// shared is the one Consul of all tests. Each test has a prefix of its own in it.
var (
	shared   serverstest.Consul
	prefixes atomic.Int64
)

func TestMain(m *testing.M) { serverstest.Main(m, shared.End) }

// testPlace is one test's part of the shared server, by a link of its own.
type testPlace struct {
	server *servers.Consul
	link   serverstest.Link
	prefix string
	token  string // that may write
}

func newPlace(t testing.TB) *testPlace {
	t.Helper()
	shared.Need(t)
	p := &testPlace{
		server: shared.Server, link: serverstest.NewLink(t, shared.Server.Plain()), prefix: fmt.Sprintf("test-%d/", prefixes.Add(1)),
	}
	p.token = shared.NewToken(t, fmt.Sprintf("key_prefix %q { policy = \"write\" } key %q { policy = \"write\" }", p.prefix+isthmus.KeyPrefix, p.prefix+configstore.IdentityPath))
	return p
}

func (p *testPlace) config(t testing.TB, token string) Config {
	return Config{Address: "http://" + p.link.Addr(), Prefix: p.prefix, Token: serverstest.Secret(t, token)}
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
	return storetest.Closing(t, mustOpen(t, p.config(t, token), configstore.Scope{}))
}

// put writes a key as others do; a nil value deletes it.
func (p *testPlace) put(t testing.TB, path string, value []byte) {
	t.Helper()
	var err error
	if value == nil {
		_, err = shared.Admin.KV().Delete(p.prefix+path, nil)
	} else {
		_, err = shared.Admin.KV().Put(&api.KVPair{Key: p.prefix + path, Value: value}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *testPlace) rewind(t testing.TB) func() {
	t.Helper()
	body, _, err := shared.Admin.Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	backup, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := shared.Admin.Snapshot().Restore(nil, bytes.NewReader(backup)); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *testPlace) backend() storetest.Backend {
	base := p.prefix + isthmus.KeyPrefix
	with := func(rules string, args ...any) func(testing.TB) configstore.ReadWriter {
		return func(t testing.TB) configstore.ReadWriter {
			return mustOpen(t, p.config(t, shared.NewToken(t, fmt.Sprintf(rules, args...))), configstore.Scope{})
		}
	}
	return storetest.Backend{
		Open: func(t testing.TB) configstore.ReadWriter {
			return mustOpen(t, p.config(t, p.token), configstore.Scope{})
		},
		Elsewhere: func(t testing.TB) configstore.ReadWriter {
			other := newPlace(t)
			return mustOpen(t, other.config(t, other.token), configstore.Scope{})
		},
		Shared:  true,
		PutRaw:  func(t testing.TB, _ configstore.ReadWriter, path string, value []byte) { p.put(t, path, value) },
		Fail:    func(t testing.TB, _ configstore.ReadWriter) func() { return p.link.Fail(t) },
		Restart: func(t testing.TB, kill bool) { serverstest.Restart(t, p.server, kill) },
		Cut:     p.link.Cut, Slow: p.link.Slow,
		Rewind: p.rewind,
		Denied: func(t testing.TB) configstore.ReadWriter {
			return mustOpen(t, p.config(t, serverstest.ConsulStranger), configstore.Scope{})
		},
		Blind: func(t testing.TB, path string) configstore.ReadWriter {
			return with(`key_prefix %q { policy = "read" } key %q { policy = "deny" }`, base, p.prefix+path)(t)
		},
		Unwritable: with(`key_prefix %q { policy = "read" }`, base),
		WrongCA: func(t testing.TB) configstore.ReadWriter {
			c := p.config(t, p.token)
			c.Address, c.TLS = p.server.URL(), &settings.TLS{CA: serverstest.OtherCA(t)}
			return mustOpen(t, c, configstore.Scope{})
		},
		Scoped: func(t testing.TB, scope configstore.Scope) configstore.ReadWriter {
			rules := fmt.Sprintf(`key %q { policy = "read" } key_prefix %q { policy = "read" }`, p.prefix+isthmus.KeyPath(scope.Selection()), base+"Cluster/")
			return mustOpen(t, p.config(t, shared.NewToken(t, rules)), scope)
		},
		Servers:   []string{p.link.Addr(), p.server.Addr()},
		Secrets:   []string{p.token, serverstest.ConsulManagement, serverstest.ConsulStranger},
		MaxBatch:  MaxBatch,
		MaxObject: MaxObject,
	}
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
		{`prefix: Consul reads "a//" as`, Config{Prefix: "a//"}},
		{`prefix: Consul reads "a/../b/" as`, Config{Prefix: "a/../b/"}},
		{"token: does not say where the secret is", Config{Token: &settings.Secret{}}},
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
	self, _, err := shared.Admin.ACL().TokenReadSelf(&api.QueryOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	policy, _, err := shared.Admin.ACL().PolicyRead(self.Policies[0].ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// revoke deletes a token.
func revoke(t *testing.T, token string) {
	t.Helper()
	self, _, err := shared.Admin.ACL().TokenReadSelf(&api.QueryOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Admin.ACL().TokenDelete(self.AccessorID, nil); err != nil {
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
