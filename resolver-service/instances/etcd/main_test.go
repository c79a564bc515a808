package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/settings"
)

// testMain stops the servers before goroutines are counted.
type testMain struct{ *testing.M }

func (m testMain) Run() int {
	defer func() {
		plain.stop()
		secure.stop()
	}()
	return m.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(testMain{m}) }

// testServer is one etcd for the tests of this package, started by the first.
type testServer struct {
	secure bool

	once  sync.Once
	err   error
	dir   string
	ca    string
	etcd  *servers.Etcd
	admin *clientv3.Client
}

var (
	plain    testServer
	secure   = testServer{secure: true}
	prefixes atomic.Int64
)

const (
	rootPassword  = "the-password-of-root"
	userPassword  = "the-password-of-the-user"
	wrongPassword = "no-such-password"
)

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

func (s *testServer) need(t testing.TB) {
	t.Helper()
	s.once.Do(func() { s.err = s.start() })
	if errors.Is(s.err, sandbox.ErrNoBinary) && os.Getenv("ISTHMUS_REQUIRE_BINARIES") == "" {
		t.Skip(s.err)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func (s *testServer) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.dir, err = os.MkdirTemp("", "isthmus-instances-"); err != nil {
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

func (s *testServer) tls() *settings.TLS {
	if !s.secure {
		return nil
	}
	return &settings.TLS{CA: s.ca}
}

// client is etcd's own client, by no link.
func (s *testServer) client(user, password string) (*clientv3.Client, error) {
	security, err := s.tls().Client()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: []string{s.etcd.URL()}, TLS: security, Username: user, Password: password, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
}

// place is one test's part of a server, with a link of its own.
type place struct {
	*testServer
	link   *servers.Proxy
	prefix string
	user   string

	writer *Source // another replica, by no link
}

func (s *testServer) place(t testing.TB) *place {
	t.Helper()
	s.need(t)
	link, err := servers.NewProxy(s.etcd.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	p := &place{testServer: s, link: link, prefix: fmt.Sprintf("test-%d/", prefixes.Add(1))}
	if s.secure {
		p.user = p.newUser(t, clientv3.PermissionType(clientv3.PermReadWrite))
	}
	return p
}

// newUser makes a user that may do something with the keys of this place.
func (p *place) newUser(t testing.TB, may clientv3.PermissionType) string {
	t.Helper()
	name := fmt.Sprintf("user-%d", prefixes.Add(1))
	root := rootOf(p.prefix, "west")
	var errs []error
	_, err := p.admin.RoleAdd(t.Context(), name)
	errs = append(errs, err)
	_, err = p.admin.RoleGrantPermission(t.Context(), name, root, clientv3.GetPrefixRangeEnd(root), may)
	errs = append(errs, err)
	_, err = p.admin.UserAdd(t.Context(), name, userPassword)
	errs = append(errs, err)
	_, err = p.admin.UserGrantRole(t.Context(), name, name)
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	return name
}

func (p *place) config(t testing.TB, address, user, password string) Config {
	c := Config{Config: etcdclient.Config{Endpoints: []string{address}, Prefix: p.prefix, TLS: p.tls()}, TTL: shortestTTL}
	if p.secure {
		path := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(path, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Username, c.Password = user, &settings.Secret{File: path}
	}
	return c
}

func openAs(t testing.TB, c Config, replica string) *Source {
	t.Helper()
	s, err := Open(c, "west", replica, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (p *place) open(t testing.TB) *Source {
	t.Helper()
	return openAs(t, p.config(t, p.link.Addr(), p.user, userPassword), "r1")
}

// run runs a part until the returned function is called, or the test ends.
func run(t testing.TB, part func(context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := part(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("ended with %v", err)
		}
	}()
	end = func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	return end
}

// other is another replica that registers what a test puts.
func (p *place) other(t testing.TB) *Source {
	t.Helper()
	if p.writer == nil {
		c := p.config(t, p.etcd.Addr(), p.user, userPassword)
		c.TTL = time.Minute
		p.writer = openAs(t, c, "r2")
		run(t, p.writer.Run)
	}
	return p.writer
}

// stored are the keys below the root with their values.
func (p *place) stored(t testing.TB) map[string]string {
	t.Helper()
	root := rootOf(p.prefix, "west")
	answer, err := p.admin.Get(context.Background(), root, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range answer.Kvs {
		if key := strings.TrimPrefix(string(kv.Key), root); !strings.HasPrefix(key, replicas) {
			all[key] = string(kv.Value)
		}
	}
	return all
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// follower is what a source says.
type follower struct {
	feed *instances.Feed

	mu     sync.Mutex
	stands map[topology.InstanceKey]catalog.Instance
	gone   []string
}

func follow(t testing.TB, s *Source) *follower {
	t.Helper()
	f := &follower{stands: map[topology.InstanceKey]catalog.Instance{}}
	var err error
	if f.feed, err = instances.NewFeed(instances.FeedConfig{Sources: []instances.Source{s}}, f, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	run(t, f.feed.Run)
	<-f.feed.Settled()
	return f
}

// Apply is that of instances.Applier.
func (f *follower) Apply(_ context.Context, c topology.Change) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range c.Instances {
		if i.Full {
			clear(f.stands)
		}
		for _, k := range i.Delete {
			delete(f.stands, k)
			f.gone = append(f.gone, keyOf(k))
		}
		for _, p := range i.Put {
			f.stands[key(p)] = p
		}
	}
	return 1, nil
}

func (f *follower) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for k, i := range f.stands {
		text := keyOf(k) + "=" + i.Address.String()
		if i.Draining {
			text += "!"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// lost are the keys that were taken away so far.
func (f *follower) lost() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.gone)
}

func (f *follower) await(t testing.TB, want string) {
	t.Helper()
	eventually(t, "there stand "+want+"; at last "+f.has(), func() bool { return f.has() == want })
}

func (f *follower) status() instances.Status {
	all, _ := f.feed.Status().Load()
	return all[0]
}

func key(i catalog.Instance) topology.InstanceKey {
	return topology.InstanceKey{App: i.App, ID: i.ID}
}
