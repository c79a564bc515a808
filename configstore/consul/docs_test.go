package consul

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

const page = "../../docs/reference/stores/consul.md"

// policies are those of the page: to read, to write, and of the sidecar of shop/checkout.
func policies(t *testing.T, prefix string) (read, write, sidecar string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 3 {
		t.Fatalf("%s has %d policies; want 3", page, len(blocks))
	}
	for i := range blocks {
		blocks[i][1] = strings.ReplaceAll(blocks[i][1], `"isthmus/`, `"`+prefix+`isthmus/`)
	}
	return blocks[0][1], blocks[1][1], blocks[2][1]
}

// first is the first change of a Watch.
func first(t *testing.T, s *Store) (change configstore.Change) {
	t.Helper()
	err := s.Watch(t.Context(), "", func(c configstore.Change) error {
		change = c
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("watch: %v", err)
	}
	return change
}

func TestThePoliciesOfThePageSuffice(t *testing.T) {
	p := newPlace(t)
	read, write, sidecar := policies(t, p.prefix)
	writer := p.open(t, shared.NewToken(t, write))
	mine := &catalog.AppEndpoints{App: checkout.App, Endpoints: selection(0, 0).Endpoints}
	writes := []configstore.Write{{Object: cluster("east", "a")}, {Object: mine}, {Object: selection(1, 1)}}
	if _, err := writer.Write(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	if err := writer.MayWrite(t.Context()); err != nil {
		t.Error(err)
	}
	reader := p.open(t, shared.NewToken(t, read))
	if c := first(t, reader); len(c.Objects) != 3 {
		t.Errorf("the reader has %d objects; want 3", len(c.Objects))
	}
	if err := reader.MayWrite(t.Context()); !errors.Is(err, configstore.ErrReadOnly) {
		t.Errorf("the reader asks whether it may write: %v; want ErrReadOnly", err)
	}
	id, err := writer.Identity(t.Context(), "made")
	if got, readErr := reader.Identity(t.Context(), ""); err != nil || readErr != nil || id != "made" || got != id {
		t.Errorf("the identity is %q, %v to the writer and %q, %v to the reader", id, err, got, readErr)
	}
	own := mustOpen(t, p.config(t, shared.NewToken(t, sidecar)), checkout)
	defer own.Close()
	if c := first(t, own); len(c.Objects) != 2 {
		t.Errorf("the sidecar has %d objects; want its selection and the cluster", len(c.Objects))
	}
	if _, err := own.Get(t.Context(), selection(1, 1).Key()); !errors.Is(err, configstore.ErrDenied) {
		t.Errorf("the sidecar gets another's selection: %v; want ErrDenied", err)
	}
}

func TestWhereListsNeedARightOfTheirOwn(t *testing.T) {
	p := newPlace(t)
	server := serverstest.Start(t, servers.StartConsul, servers.ConsulOptions{Management: serverstest.ConsulManagement, Settings: map[string]any{"acl": map[string]any{
		"enabled": true, "default_policy": "deny", "enable_key_list_policy": true, "tokens": map[string]any{"initial_management": serverstest.ConsulManagement},
	}}})
	admin, err := serverstest.ConsulAdmin(server)
	if err != nil {
		t.Fatal(err)
	}
	before := shared.Admin
	defer useAdmin(before)
	useAdmin(admin)
	read, _, sidecar := policies(t, p.prefix)
	for _, c := range []struct {
		rules string
		scope configstore.Scope
	}{{read, configstore.Scope{}}, {sidecar, checkout}} {
		list := regexp.MustCompile(`(key_prefix .*)"read"`).ReplaceAllString(c.rules, `$1"list"`)
		s := mustOpen(t, Config{Address: server.URL(), Prefix: p.prefix, Token: serverstest.Secret(t, shared.NewToken(t, list))}, c.scope)
		if c := first(t, s); !c.Full {
			t.Errorf("first change %+v; want the full set", c)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = mustOpen(t, Config{Address: server.URL(), Prefix: p.prefix, Token: serverstest.Secret(t, shared.NewToken(t, c.rules))}, c.scope)
		err := s.Watch(t.Context(), "", func(c configstore.Change) error { return errEnough })
		if !errors.Is(err, configstore.ErrDenied) {
			t.Errorf("without the right to list: %v; want ErrDenied", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func useAdmin(client *api.Client) { shared.Admin = client }
