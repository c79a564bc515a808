package consul

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func tlsOf() *settings.TLS { return &settings.TLS{CA: shared.CA} }

// leaderless is one server of a cluster of three whose others never came.
func leaderless(t *testing.T) *servers.Consul {
	t.Helper()
	return serverstest.Start(t, servers.StartConsul, servers.ConsulOptions{Expect: 3})
}

var checkout = configstore.Scope{App: catalog.App{Namespace: "shop", ID: "checkout"}}

// TestWithoutATokenNothingIsEmpty is about what Consul answers with an empty list and no
// word of what it left out.
func TestWithoutATokenNothingIsEmpty(t *testing.T) {
	p := newPlace(t)
	storetest.Put(t, p.open(t, p.token), cluster("east", "a"))
	for name, scope := range map[string]configstore.Scope{"everything": {}, "one app": checkout} {
		s := mustOpen(t, p.config(t, ""), scope)
		defer s.Close()
		_, getErr := s.Get(t.Context(), cluster("east", "").Key())
		_, _, listErr := s.List(t.Context())
		watchErr := s.Watch(t.Context(), "", func(c configstore.Change) error {
			t.Errorf("%s: delivered %+v", name, c)
			return nil
		})
		for what, err := range map[string]error{"get": getErr, "list": listErr, "watch": watchErr, "write": s.MayWrite(t.Context())} {
			if !errors.Is(err, configstore.ErrDenied) {
				t.Errorf("%s, %s: %v; want ErrDenied", name, what, err)
			}
		}
	}
}

// TestAPolicyThatLeavesSomethingOutTakesNothingAway narrows a token while it is in use.
func TestAPolicyThatLeavesSomethingOutTakesNothingAway(t *testing.T) {
	for name, hole := range map[string]string{
		"one key": `key "%[1]sCluster/east" { policy = "deny" }`, "a prefix": `key_prefix "%[1]sCluster/" { policy = "deny" }`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			writer := p.open(t, p.token)
			storetest.Put(t, writer, cluster("east", "a"))
			base := p.prefix + isthmus.KeyPrefix
			token := shared.NewToken(t, fmt.Sprintf(`key_prefix %q { policy = "read" }`, base))
			f := storetest.Follow(t, p.open(t, token))
			f.AwaitClusters("east=a")
			narrow(t, token, fmt.Sprintf(`key_prefix %q { policy = "read" } %s`, base, fmt.Sprintf(hole, base)))
			storetest.Put(t, writer, cluster("west", "a"))
			status := f.AwaitStatus("an error", func(s configstore.Status) bool { return s.Err != nil })
			if !errors.Is(status.Err, configstore.ErrDenied) || !strings.Contains(status.Err.Error(), base) {
				t.Errorf("status %+v; want ErrDenied, and the prefix", status)
			}
			if got := f.Clusters(); !strings.HasPrefix(got, "east=a") {
				t.Errorf("clusters are %v; want that east stands", got)
			}
		})
	}
}

// narrow gives the policy of a token other rules.
func narrow(t *testing.T, token, rules string) {
	t.Helper()
	policy := policyOf(t, token)
	policy.Rules = rules
	if _, _, err := shared.Admin.ACL().PolicyUpdate(policy, nil); err != nil {
		t.Fatal(err)
	}
}

func TestATokenIsReadAgainWhenItsFileIsReplaced(t *testing.T) {
	p := newPlace(t)
	base := p.prefix + isthmus.KeyPrefix
	c := p.config(t, shared.NewToken(t, fmt.Sprintf(`key_prefix %q { policy = "write" }`, base)))
	old, err := c.Token.Read()
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, c, configstore.Scope{})
	defer s.Close()
	storetest.Put(t, s, cluster("east", "a"))
	f := storetest.Follow(t, s)
	f.AwaitClusters("east=a")
	revoke(t, old)
	if _, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", "b")}); !errors.Is(err, configstore.ErrDenied) || strings.Contains(err.Error(), old) {
		t.Errorf("write with a token that was deleted: %v; want ErrDenied, and not the token", err)
	}
	if err := os.WriteFile(c.Token.File, []byte(p.token), 0o600); err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, cluster("east", "c"))
	f.AwaitClusters("east=c")
	if err := os.Remove(c.Token.File); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context(), cluster("east", "").Key())
	if look := c.Token.Look(); err != nil || look == nil || !strings.Contains(look.Error(), c.Token.File) {
		t.Errorf("get with a token's file that is gone: %v, %v; want that the last one is used, and the file named", err, look)
	}
}

func TestBehindTLS(t *testing.T) {
	p := newPlace(t)
	c := Config{Address: p.server.URL(), TLS: tlsOf(), Prefix: p.prefix, Token: serverstest.Secret(t, p.token)}
	s := mustOpen(t, c, configstore.Scope{})
	defer s.Close()
	storetest.Put(t, s, cluster("east", "a"))
	storetest.Follow(t, p.open(t, p.token)).AwaitClusters("east=a")
	if who, err := s.Server(t.Context()); err != nil || !strings.Contains(who, p.server.URL()) {
		t.Errorf("server: %q, %v", who, err)
	}
	if err := s.MayWrite(t.Context()); err != nil {
		t.Errorf("may write: %v", err)
	}
	if objects, _, err := s.List(t.Context()); err != nil || len(objects) != 1 {
		t.Errorf("after asking for permission: %d objects, %v; want the one", len(objects), err)
	}
}

// TestWhatIsSentIsWhatTheSettingsSay looks at requests as a server gets them.
func TestWhatIsSentIsWhatTheSettingsSay(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN", "of-the-environment")
	t.Setenv("CONSUL_HTTP_TOKEN_FILE", "/nowhere")
	t.Setenv("CONSUL_NAMESPACE", "of-the-environment")
	t.Setenv("CONSUL_PARTITION", "of-the-environment")
	t.Setenv("ISTHMUS_TEST_TOKEN", "of-the-settings")
	var seen *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		_, _ = w.Write([]byte(`"127.0.0.1:8300"`))
	}))
	defer server.Close()
	for want, c := range map[string]Config{
		"token= ns= partition= dc=": {Address: server.URL},
		"token=of-the-settings ns=team partition=blue dc=east": {
			Address: server.URL, Token: &settings.Secret{Env: "ISTHMUS_TEST_TOKEN"}, Namespace: "team", Partition: "blue", Datacenter: "east",
		},
	} {
		s := mustOpen(t, c, configstore.Scope{})
		if _, err := s.Server(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		query := seen.URL.Query()
		got := fmt.Sprintf("token=%s ns=%s partition=%s dc=%s", seen.Header.Get("X-Consul-Token"), query.Get("ns"), query.Get("partition"), query.Get("dc"))
		if got != want {
			t.Errorf("sent %s; want %s", got, want)
		}
	}
}

func TestByAUnixSocket(t *testing.T) {
	p := newPlace(t)
	socket := filepath.Join(t.TempDir(), "consul.sock")
	forward(t, socket, p.link.Addr())
	s := mustOpen(t, Config{Address: "unix://" + socket, Prefix: p.prefix, Token: serverstest.Secret(t, p.token)}, configstore.Scope{})
	defer s.Close()
	storetest.Put(t, s, cluster("east", "a"))
	if got, err := s.Get(t.Context(), cluster("east", "").Key()); err != nil || got.Object.(*catalog.Cluster).Network != "a" {
		t.Errorf("get: %+v, %v", got, err)
	}
}
