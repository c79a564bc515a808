package etcd

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/instancestest"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

var (
	plain  serverstest.Etcd
	secure = serverstest.Etcd{Secure: true}
)

const wrongPassword = "no-such-password"

func TestMain(m *testing.M) { serverstest.Main(m, plain.End, secure.End) }

// place is one test's part of a server.
type place struct {
	serverstest.EtcdPlace
	user string

	writer *Source // another replica, by no link
}

func newPlace(t testing.TB, server *serverstest.Etcd) *place {
	t.Helper()
	p := &place{EtcdPlace: server.Place(t)}
	if p.Secure {
		p.user = p.newUser(t, clientv3.PermReadWrite)
	}
	return p
}

// newUser makes a user that may do something with the keys of this place.
func (p *place) newUser(t testing.TB, may authpb.Permission_Type) string {
	t.Helper()
	root := rootOf(p.Prefix, "west")
	return p.NewUser(t, serverstest.Grant{Kind: may, Begin: root, End: clientv3.GetPrefixRangeEnd(root)})
}

// startLimit is how long a server may take to start and to end.
const startLimit = 5 * time.Minute

// config has leases that last, however long this machine stands still.
func (p *place) config(t testing.TB, address, user string) Config {
	c := Config{Config: etcdclient.Config{Endpoints: []string{address}, Prefix: p.Prefix, TLS: p.TLS()}, TTL: time.Minute}
	if p.Secure {
		c.Username, c.Password = user, serverstest.Secret(t, serverstest.PasswordOf(user))
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
	return openAs(t, p.config(t, p.Link.Addr(), p.user), "r1")
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
		p.writer = openAs(t, p.config(t, p.Server.Addr(), p.user), "r2")
		run(t, p.writer.Run)
	}
	return p.writer
}

// stored are the keys below the root with their values.
func (p *place) stored(t testing.TB) map[string]string {
	t.Helper()
	root := rootOf(p.Prefix, "west")
	answer, err := p.Admin.Get(context.Background(), root, clientv3.WithPrefix())
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

// follower is what a source says.
type follower struct{ *instancestest.Followed }

func follow(t testing.TB, s *Source) *follower {
	t.Helper()
	f := &follower{instancestest.Follow(t, s)}
	<-f.Feed.Settled()
	return f
}

func (f *follower) has() string {
	var all []string
	for _, i := range f.Stands() {
		text := keyOf(key(i)) + "=" + i.Address.String()
		if i.Draining {
			text += "!"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// lost are the keys that were taken away so far.
func (f *follower) lost() (all []string) {
	for _, k := range f.Deleted() {
		all = append(all, keyOf(k))
	}
	return all
}

func (f *follower) await(t testing.TB, want string) {
	t.Helper()
	serverstest.Await(t, "there stand "+want+"; at last "+f.has(), func() bool { return f.has() == want })
}

// registers has an instance registered now.
func (s *Source) registers(i catalog.Instance, taken func()) {
	s.Register(since(i, s.Clock().Next()), taken)
}

// since is an instance that registered at a time.
func since(i catalog.Instance, at int64) catalog.Instance {
	i.Since = at
	return i
}

func key(i catalog.Instance) topology.InstanceKey {
	return topology.InstanceKey{App: i.App, ID: i.ID}
}
