package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/settings"
)

const (
	rootPassword  = "root-password-of-tests"
	wrongPassword = "wrong-password-of-tests"
)

// testServer is an etcd that tests share. Each has a prefix of its own in it.
type testServer struct {
	once   sync.Once
	secure bool // with TLS and users
	err    error
	dir    string
	etcd   *servers.Etcd
	admin  *clientv3.Client // of root, by no link
	ca     string           // file
}

var (
	plainServer  = &testServer{}
	secureServer = &testServer{secure: true}
	prefixes     atomic.Int64
)

// testMain ends the servers before goroutines are counted.
type testMain struct{ *testing.M }

func (m testMain) Run() int {
	defer plainServer.stop()
	defer secureServer.stop()
	return m.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(testMain{m}) }

func (s *testServer) stop() {
	if s.admin != nil {
		_ = s.admin.Close()
	}
	if s.etcd != nil {
		_ = s.etcd.Kill()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// need starts the server, the first time.
func (s *testServer) need(t testing.TB) {
	t.Helper()
	s.once.Do(func() { s.err = s.start() })
	orSkip(t, s.err)
}

// orSkip fails a test that could not start its server, or skips it where none was built.
func orSkip(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, sandbox.ErrNoBinary) && os.Getenv("ISTHMUS_REQUIRE_BINARIES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *testServer) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.dir, err = os.MkdirTemp("", "isthmus-etcd-"); err != nil {
		return err
	}
	options := servers.EtcdOptions{Args: []string{"--bcrypt-cost=4"}}
	if s.secure {
		if err := s.certify(&options); err != nil {
			return err
		}
	}
	if s.etcd, err = servers.StartEtcd(ctx, s.dir, options); err != nil {
		return err
	}
	if s.admin, err = s.client("", ""); err != nil || !s.secure {
		return err
	}
	for _, step := range []func() error{
		func() error { _, err := s.admin.UserAdd(ctx, "root", rootPassword); return err },
		func() error { _, err := s.admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := s.admin.AuthEnable(ctx); return err },
		func() error { return s.admin.Close() },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	s.admin, err = s.client("root", rootPassword)
	return err
}

// certify makes an authority and a certificate of it for the server.
func (s *testServer) certify(o *servers.EtcdOptions) error {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return err
	}
	cert, key, err := authority.Server("127.0.0.1")
	if err != nil {
		return err
	}
	s.ca, o.Cert, o.Key = filepath.Join(s.dir, "ca.pem"), filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")
	for path, text := range map[string][]byte{s.ca: authority.Anchors(), o.Cert: cert, o.Key: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// client is etcd's own client, by no link.
func (s *testServer) client(user, password string) (*clientv3.Client, error) {
	security, err := s.tls().Client()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: []string{s.etcd.URL()}, TLS: security, Username: user, Password: password, Logger: zap.NewNop(),
		MaxCallSendMsgSize: math.MaxInt32, DialTimeout: 10 * time.Second,
	})
}

func (s *testServer) tls() *settings.TLS {
	if !s.secure {
		return nil
	}
	return &settings.TLS{CA: s.ca}
}

// testPlace is one test's part of a server, by a link of its own.
type testPlace struct {
	*testServer
	link   *servers.Proxy
	prefix string
	user   string // that may write
}

func (s *testServer) place(t testing.TB) *testPlace {
	t.Helper()
	s.need(t)
	link, err := servers.NewProxy(s.etcd.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	p := &testPlace{testServer: s, link: link, prefix: fmt.Sprintf("test-%d/", prefixes.Add(1))}
	if s.secure {
		all := below(p.prefix + api.KeyPrefix)
		p.user = p.newUser(t, grant{clientv3.PermissionType(clientv3.PermReadWrite), all})
	}
	return p
}

// grant is a permission on a range.
type grant struct {
	kind clientv3.PermissionType
	span
}

// newUser makes a user with a role; its password is its name.
func (s *testServer) newUser(t testing.TB, grants ...grant) string {
	t.Helper()
	name := fmt.Sprintf("user-%d", prefixes.Add(1))
	if _, err := s.admin.RoleAdd(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	for _, g := range grants {
		if _, err := s.admin.RoleGrantPermission(t.Context(), name, g.begin, g.end, g.kind); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.admin.UserAdd(t.Context(), name, passwordOf(name)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.UserGrantRole(t.Context(), name, name); err != nil {
		t.Fatal(err)
	}
	return name
}

func passwordOf(user string) string { return "the-password-of-" + user }

// secret is a password in a file; the empty one is none.
func secret(t testing.TB, password string) *settings.Secret {
	t.Helper()
	if password == "" {
		return nil
	}
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &settings.Secret{File: path}
}

// config is that of a store for a user.
func (p *testPlace) config(t testing.TB, user, password string) Config {
	c := Config{Endpoints: []string{p.link.Addr()}, Prefix: p.prefix, TLS: p.tls()}
	if p.secure {
		c.Username, c.Password = user, secret(t, password)
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
	return p.as(t, p.user, passwordOf(p.user), configstore.Scope{})
}

func (p *testPlace) PutRaw(t testing.TB, _ configstore.ReadWriter, path string, value []byte) {
	t.Helper()
	var err error
	if value == nil {
		_, err = p.admin.Delete(t.Context(), p.prefix+path)
	} else {
		_, err = p.admin.Put(t.Context(), p.prefix+path, string(value))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *testPlace) mend(t testing.TB) func() {
	return func() {
		if err := p.link.Mend(); err != nil {
			t.Error(err)
		}
	}
}

func (p *testPlace) Fail(t testing.TB, _ configstore.ReadWriter) (mend func()) {
	p.link.Refuse()
	return p.mend(t)
}

func (p *testPlace) Cut(t testing.TB) (mend func()) {
	p.link.Drop()
	return p.mend(t)
}

func (p *testPlace) Slow(t testing.TB, by time.Duration) (mend func()) {
	p.link.Delay(by)
	return p.mend(t)
}

func (p *testPlace) Restart(t testing.TB, kill bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	end := func() error { return p.etcd.Stop(ctx) }
	if kill {
		end = p.etcd.Kill
	}
	if err := errors.Join(end(), p.etcd.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	p.awaitAdmin(ctx, t)
}

// awaitAdmin makes our own client anew: a server that was put back to a backup lets one
// with a token of before wait without end.
func (p *testPlace) awaitAdmin(ctx context.Context, t testing.TB) {
	t.Helper()
	_ = p.admin.Close()
	user, password := "", ""
	if p.secure {
		user, password = "root", rootPassword
	}
	var err error
	if p.admin, err = p.client(user, password); err == nil {
		_, err = p.admin.Get(ctx, "anything")
	}
	if err != nil {
		t.Fatalf("the server is not found again: %v", err)
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
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.etcd.Restore(ctx, backup); err != nil {
			t.Fatal(err)
		}
		p.awaitAdmin(ctx, t)
	}
}

func (p *testPlace) Compact(t testing.TB) {
	t.Helper()
	now, err := p.admin.Get(t.Context(), "anything")
	if err == nil {
		_, err = p.admin.Compact(t.Context(), now.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *testPlace) Denied(t testing.TB) configstore.ReadWriter {
	return p.as(t, p.user, wrongPassword, configstore.Scope{})
}

// Blind is a user that may read what is before a key, and what is after it.
func (p *testPlace) Blind(t testing.TB, path string) configstore.ReadWriter {
	all := below(p.prefix + api.KeyPrefix)
	user := p.newUser(t, grant{clientv3.PermissionType(clientv3.PermRead), span{all.begin, p.prefix + path}}, grant{clientv3.PermissionType(clientv3.PermRead), span{p.prefix + path + "\x00", all.end}})
	return p.as(t, user, passwordOf(user), configstore.Scope{})
}

func (p *testPlace) Unwritable(t testing.TB) configstore.ReadWriter {
	user := p.newUser(t, grant{clientv3.PermissionType(clientv3.PermRead), below(p.prefix + api.KeyPrefix)})
	return p.as(t, user, passwordOf(user), configstore.Scope{})
}

// Scoped is a user with the least that a sidecar needs.
func (p *testPlace) Scoped(t testing.TB, scope configstore.Scope) configstore.ReadWriter {
	if !p.secure {
		return p.as(t, "", "", scope)
	}
	user := p.newUser(t,
		grant{clientv3.PermissionType(clientv3.PermRead), span{begin: p.prefix + api.KeyPath(scope.Selection())}},
		grant{clientv3.PermissionType(clientv3.PermRead), below(p.prefix + api.KeyPrefix + "Cluster/")})
	return p.as(t, user, passwordOf(user), scope)
}

func (p *testPlace) WrongCA(t testing.TB) configstore.ReadWriter {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c := p.config(t, p.user, passwordOf(p.user))
	c.TLS = &settings.TLS{CA: filepath.Join(t.TempDir(), "other.pem")}
	if err := os.WriteFile(c.TLS.CA, authority.Anchors(), 0o600); err != nil {
		t.Fatal(err)
	}
	return p.open(t, c, configstore.Scope{})
}

func backend(p *testPlace) storetest.Backend {
	b := storetest.Backend{
		Open: p.Open, Shared: true, PutRaw: p.PutRaw, Fail: p.Fail, Restart: p.Restart, Cut: p.Cut, Slow: p.Slow,
		Rewind: p.Rewind, Compact: p.Compact, Scoped: p.Scoped,
		Servers:  []string{p.link.Addr()},
		MaxBatch: etcdclient.DefaultMaxTxnOps, MaxObject: maxObject(Config{}.WithDefaults()), Resumes: true,
	}
	if p.secure {
		b.Denied, b.Blind, b.Unwritable, b.WrongCA = p.Denied, p.Blind, p.Unwritable, p.WrongCA
		b.Secrets = []string{wrongPassword, "the-password-of-"}
	}
	return b
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend { return backend(secureServer.place(t)) })
}

func TestStoreWithoutUsersAndTLS(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend { return backend(plainServer.place(t)) })
}
