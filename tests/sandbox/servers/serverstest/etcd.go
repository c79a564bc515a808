package serverstest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// Etcd is one that tests share. Each has a prefix of its own in it.
type Etcd struct {
	Secure bool // with TLS and users

	Server *servers.Etcd
	Admin  *clientv3.Client // of root, by no link
	CA     string           // file; empty without TLS

	once   sync.Once
	err    error
	dir    string
	places atomic.Int64
}

// Passwords is what stands in every password of a user; nothing else has it.
const Passwords = "the-password-of-"

// PasswordOf is the password of a user, root among them.
func PasswordOf(user string) string { return Passwords + user }

// Need starts the server, the first time.
func (e *Etcd) Need(t testing.TB) {
	t.Helper()
	e.once.Do(func() { e.err = e.start() })
	programstest.OrSkip(t, e.err)
}

// End ends the server if it was started.
func (e *Etcd) End() {
	if e.Admin != nil {
		_ = e.Admin.Close()
	}
	if e.Server != nil {
		_ = e.Server.Kill()
	}
	_ = os.RemoveAll(e.dir)
}

func (e *Etcd) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if e.dir, err = os.MkdirTemp("", "isthmus-etcd-"); err != nil {
		return err
	}
	// What a kill of a process loses is not what fsync is for.
	options := servers.EtcdOptions{Args: []string{"--bcrypt-cost=4", "--unsafe-no-fsync"}}
	if e.Secure {
		c, err := certify(e.dir)
		if err != nil {
			return err
		}
		e.CA, options.Cert, options.Key = c.ca, c.cert, c.key
	}
	if e.Server, err = servers.StartEtcd(ctx, e.dir, options); err != nil {
		return err
	}
	if e.Admin, err = e.client(""); err != nil || !e.Secure {
		return err
	}
	for _, step := range []func() error{
		func() error { _, err := e.Admin.UserAdd(ctx, "root", PasswordOf("root")); return err },
		func() error { _, err := e.Admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := e.Admin.AuthEnable(ctx); return err },
		func() error { return e.Admin.Close() },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	e.Admin, err = e.client("root")
	return err
}

// client is etcd's own client, by no link.
func (e *Etcd) client(user string) (*clientv3.Client, error) {
	security, err := e.TLS().Client()
	if err != nil {
		return nil, err
	}
	c := clientv3.Config{
		Endpoints: []string{e.Server.URL()}, TLS: security.Config(), Logger: zap.NewNop(),
		MaxCallSendMsgSize: math.MaxInt32, DialTimeout: startLimit,
	}
	if user != "" {
		c.Username, c.Password = user, PasswordOf(user)
	}
	return clientv3.New(c)
}

// TLS is how clients know the server; nil without TLS.
func (e *Etcd) TLS() *settings.TLS {
	if !e.Secure {
		return nil
	}
	return &settings.TLS{CA: e.CA}
}

// EtcdPlace is one test's part of a server, by a link of its own.
type EtcdPlace struct {
	*Etcd
	Link   Link
	Prefix string // of keys
}

// Place makes a place, and starts the server first if nobody has.
func (e *Etcd) Place(t testing.TB) EtcdPlace {
	t.Helper()
	e.Need(t)
	return EtcdPlace{Etcd: e, Link: NewLink(t, e.Server.Addr()), Prefix: fmt.Sprintf("test-%d/", e.places.Add(1))}
}

// Grant is a permission on the keys from Begin on and before End.
type Grant struct {
	Kind       authpb.Permission_Type // such as clientv3.PermRead
	Begin, End string
}

// NewUser makes a user with a role of the same name, and the password that PasswordOf says.
func (e *Etcd) NewUser(t testing.TB, grants ...Grant) string {
	t.Helper()
	name := fmt.Sprintf("user-%d", e.places.Add(1))
	_, err := e.Admin.RoleAdd(t.Context(), name)
	errs := []error{err}
	for _, g := range grants {
		_, err = e.Admin.RoleGrantPermission(t.Context(), name, g.Begin, g.End, clientv3.PermissionType(g.Kind))
		errs = append(errs, err)
	}
	_, err = e.Admin.UserAdd(t.Context(), name, PasswordOf(name))
	errs = append(errs, err)
	_, err = e.Admin.UserGrantRole(t.Context(), name, name)
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	return name
}

// Restart is that of the function, and Admin works when it returns.
func (e *Etcd) Restart(t testing.TB, kill bool) {
	t.Helper()
	Restart(t, e.Server, kill)
	e.AdminAnew(t)
}

// AdminAnew makes Admin anew: a server that was put back to a backup lets one with a token
// of before wait without end.
func (e *Etcd) AdminAnew(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	_ = e.Admin.Close()
	user := ""
	if e.Secure {
		user = "root"
	}
	var err error
	if e.Admin, err = e.client(user); err == nil {
		_, err = e.Admin.Get(ctx, "anything")
	}
	if err != nil {
		t.Fatalf("the server is not found again: %v", err)
	}
}

// Compact makes the server forget what was before now.
func (e *Etcd) Compact(t testing.TB) {
	t.Helper()
	compact(t, e.Admin)
}

func compact(t testing.TB, client *clientv3.Client, options ...clientv3.CompactOption) {
	t.Helper()
	now, err := client.Get(t.Context(), "anything")
	if err == nil {
		_, err = client.Compact(t.Context(), now.Header.Revision, options...)
	}
	if err != nil {
		t.Fatal(err)
	}
}
