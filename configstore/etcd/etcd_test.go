package etcd

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

const wrongPassword = "wrong-password-of-tests"

var (
	plainServer  serverstest.Etcd
	secureServer = serverstest.Etcd{Secure: true}
)

func TestMain(m *testing.M) { serverstest.Main(m, plainServer.End, secureServer.End) }

// testPlace is one test's part of a server.
type testPlace struct {
	serverstest.EtcdPlace
	user string // that may write
}

func newPlace(t testing.TB, server *serverstest.Etcd) *testPlace {
	t.Helper()
	p := &testPlace{EtcdPlace: server.Place(t)}
	if p.Secure {
		p.user = p.NewUser(t, grant(clientv3.PermReadWrite, below(p.Prefix+api.KeyPrefix)), grant(clientv3.PermReadWrite, span{begin: p.Prefix + configstore.IdentityPath}))
	}
	return p
}

// grant is a permission on a range.
func grant(kind authpb.Permission_Type, all span) serverstest.Grant {
	return serverstest.Grant{Kind: kind, Begin: all.begin, End: all.end}
}

// config is that of a store for a user.
func (p *testPlace) config(t testing.TB, user, password string) Config {
	c := Config{Endpoints: []string{p.Link.Addr()}, Prefix: p.Prefix, TLS: p.TLS()}
	if p.Secure {
		c.Username, c.Password = user, serverstest.Secret(t, password)
	}
	return c
}

func (p *testPlace) open(t testing.TB, c Config, scope configstore.Scope) *Store {
	t.Helper()
	s, err := Open(c, scope, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *testPlace) as(t testing.TB, user, password string, scope configstore.Scope) *Store {
	t.Helper()
	return p.open(t, p.config(t, user, password), scope)
}

func (p *testPlace) Open(t testing.TB) configstore.ReadWriter {
	return p.as(t, p.user, serverstest.PasswordOf(p.user), configstore.Scope{})
}

func (p *testPlace) PutRaw(t testing.TB, _ configstore.ReadWriter, path string, value []byte) {
	t.Helper()
	var err error
	if value == nil {
		_, err = p.Admin.Delete(t.Context(), p.Prefix+path)
	} else {
		_, err = p.Admin.Put(t.Context(), p.Prefix+path, string(value))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Rewind takes a backup as "etcdctl snapshot save" does, and restores as etcd's
// documentation says.
func (p *testPlace) Rewind(t testing.TB) (restore func()) {
	t.Helper()
	backup := filepath.Join(t.TempDir(), "backup.db")
	p.backup(t, backup)
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		if err := p.Server.Restore(ctx, backup); err != nil {
			t.Fatal(err)
		}
		p.AdminAnew(t)
	}
}

func (p *testPlace) Denied(t testing.TB) configstore.ReadWriter {
	return p.as(t, p.user, wrongPassword, configstore.Scope{})
}

// Blind is a user that may read what is before a key, and what is after it.
func (p *testPlace) Blind(t testing.TB, path string) configstore.ReadWriter {
	all := below(p.Prefix + api.KeyPrefix)
	user := p.NewUser(t, grant(clientv3.PermRead, span{all.begin, p.Prefix + path}), grant(clientv3.PermRead, span{p.Prefix + path + "\x00", all.end}))
	return p.as(t, user, serverstest.PasswordOf(user), configstore.Scope{})
}

func (p *testPlace) Unwritable(t testing.TB) configstore.ReadWriter {
	user := p.NewUser(t, grant(clientv3.PermRead, below(p.Prefix+api.KeyPrefix)))
	return p.as(t, user, serverstest.PasswordOf(user), configstore.Scope{})
}

// Scoped is a user with the least that a sidecar needs.
func (p *testPlace) Scoped(t testing.TB, scope configstore.Scope) configstore.ReadWriter {
	if !p.Secure {
		return p.as(t, "", "", scope)
	}
	user := p.NewUser(t,
		grant(clientv3.PermRead, span{begin: p.Prefix + api.KeyPath(scope.Selection())}),
		grant(clientv3.PermRead, below(p.Prefix+api.KeyPrefix+"Cluster/")))
	return p.as(t, user, serverstest.PasswordOf(user), scope)
}

func (p *testPlace) WrongCA(t testing.TB) configstore.ReadWriter {
	c := p.config(t, p.user, serverstest.PasswordOf(p.user))
	c.TLS = &settings.TLS{CA: serverstest.OtherCA(t)}
	return p.open(t, c, configstore.Scope{})
}

func backend(p *testPlace, server *serverstest.Etcd) storetest.Backend {
	b := storetest.Backend{
		Elsewhere: func(t testing.TB) configstore.ReadWriter { return newPlace(t, server).Open(t) },
		Open:      p.Open, Shared: true, PutRaw: p.PutRaw, Restart: p.Restart, Cut: p.Link.Cut, Slow: p.Link.Slow,
		Fail:   func(t testing.TB, _ configstore.ReadWriter) func() { return p.Link.Fail(t) },
		Rewind: p.Rewind, Compact: p.Compact, Scoped: p.Scoped,
		Servers:  []string{p.Link.Addr()},
		MaxBatch: etcdclient.DefaultMaxTxnOps, MaxObject: maxObject(Config{}.WithDefaults()), Resumes: true,
	}
	if p.Secure {
		b.Denied, b.Blind, b.Unwritable, b.WrongCA = p.Denied, p.Blind, p.Unwritable, p.WrongCA
		b.Secrets = []string{wrongPassword, serverstest.Passwords}
	}
	return b
}

func TestStore(t *testing.T) {
	t.Parallel() // each has a server of its own, and waits most of the time
	storetest.Run(t, func(t *testing.T) storetest.Backend { return backend(newPlace(t, &secureServer), &secureServer) })
}

func TestStoreWithoutUsersAndTLS(t *testing.T) {
	t.Parallel() // each has a server of its own, and waits most of the time
	storetest.Run(t, func(t *testing.T) storetest.Backend { return backend(newPlace(t, &plainServer), &plainServer) })
}
