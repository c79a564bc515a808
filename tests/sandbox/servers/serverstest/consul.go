package serverstest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// Tokens for Consul: one that may do everything, and one that the server does not know.
const (
	ConsulManagement = "11111111-2222-3333-4444-555555555555"
	ConsulStranger   = "99999999-8888-7777-6666-555555555555"
)

// Consul is one that tests share, with ACLs. It serves with TLS, and in the clear beside it.
type Consul struct {
	Server *servers.Consul
	Admin  *api.Client // may do everything, by no link
	CA     string      // file

	once   sync.Once
	err    error
	dir    string
	tokens atomic.Int64
}

// Need starts the server, the first time.
func (c *Consul) Need(t testing.TB) {
	t.Helper()
	c.once.Do(func() { c.err = c.start() })
	programstest.OrSkip(t, c.err)
}

// End ends the server if it was started.
func (c *Consul) End() {
	if c.Server != nil {
		_ = c.Server.Kill()
	}
	_ = os.RemoveAll(c.dir)
}

func (c *Consul) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if c.dir, err = os.MkdirTemp("", "isthmus-consul-"); err != nil {
		return err
	}
	files, err := certify(c.dir)
	if err != nil {
		return err
	}
	c.CA = files.ca
	if c.Server, err = servers.StartConsul(ctx, c.dir, servers.ConsulOptions{Management: ConsulManagement, Cert: files.cert, Key: files.key}); err != nil {
		return err
	}
	c.Admin, err = ConsulAdmin(c.Server)
	return err
}

// ConsulAdmin is a client of a server, whose management token is ConsulManagement, that may
// do everything.
func ConsulAdmin(s *servers.Consul) (*api.Client, error) {
	return api.NewClient(&api.Config{Address: s.Plain(), Scheme: "http", Token: ConsulManagement})
}

// NewToken makes a token with one policy of these rules.
func (c *Consul) NewToken(t testing.TB, rules string) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", c.tokens.Add(1))
	if _, _, err := c.Admin.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		t.Fatalf("make a policy of %s: %v", rules, err)
	}
	token, _, err := c.Admin.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{Name: name}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return token.SecretID
}
