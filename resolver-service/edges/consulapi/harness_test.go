package consulapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// real is the one Consul agent of all tests.
var real struct {
	once   sync.Once
	err    error
	dir    string
	server *servers.Consul
	tokens map[string]string
}

func TestMain(m *testing.M) {
	serverstest.Main(m, func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if real.server != nil {
			_ = real.server.Kill()
		}
		_ = os.RemoveAll(real.dir)
	})
}

// agent is what the suite runs against: a Consul agent, or Isthmus.
type agent struct {
	name   string
	url    string
	tokens map[string]string // by app; "stranger" is one that nobody has
}

// client is one of Consul's own for an app.
func (a *agent) client(t testing.TB, app string) *api.Client {
	t.Helper()
	c, err := api.NewClient(&api.Config{Address: a.url, Token: a.tokens[app], Transport: transport(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func transport(t testing.TB) *http.Transport {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// consul is a real agent, in which each app may write its own service, and checkout read
// orders.
func consul(t testing.TB) *agent {
	t.Helper()
	real.once.Do(func() { real.err = startReal() })
	programstest.OrSkip(t, real.err)
	a := &agent{"consul", "http://" + real.server.Plain(), real.tokens}
	for _, app := range []string{"checkout", "orders"} {
		c := a.client(t, app)
		all, err := c.Agent().Services()
		if err != nil {
			t.Fatal(err)
		}
		for id := range all {
			if err := c.Agent().ServiceDeregister(id); err != nil && !strings.Contains(err.Error(), "Permission denied") {
				t.Fatal(err)
			}
		}
	}
	return a
}

func startReal() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if real.dir, err = os.MkdirTemp("", "isthmus-consulapi-"); err != nil {
		return err
	}
	real.server, err = servers.StartConsul(ctx, real.dir, servers.ConsulOptions{
		Management: serverstest.ConsulManagement, Settings: map[string]any{"datacenter": "west", "node_name": "isthmus-west", "enable_script_checks": false},
	})
	if err != nil {
		return err
	}
	admin, err := serverstest.ConsulAdmin(real.server)
	if err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // until the agent has told the catalog all of itself
		n, _, err := admin.Catalog().Node("isthmus-west", nil)
		if err == nil && n != nil && n.Node.TaggedAddresses["wan_ipv4"] != "" || time.Now().After(end) {
			break
		}
	}
	real.tokens = map[string]string{"stranger": serverstest.ConsulStranger, "anonymous": ""}
	for app, more := range map[string]string{"checkout": `service "orders" { policy = "read" }`, "orders": ""} {
		rules := fmt.Sprintf(`service %q { policy = "write" } node_prefix "" { policy = "read" } agent_prefix "" { policy = "read" } %s`, app, more)
		if _, _, err := admin.ACL().PolicyCreate(&api.ACLPolicy{Name: app, Rules: rules}, nil); err != nil {
			return err
		}
		token, _, err := admin.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{Name: app}}}, nil)
		if err != nil {
			return err
		}
		real.tokens[app] = token.SecretID
	}
	return nil
}

// isthmus is ours, with its topology.
type isthmus struct {
	agent
	server   *Server
	topology *topology.Topology
	stop     func()
}

func shop(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

// selection lets an app of shop call others.
func selection(app string, endpoints ...catalog.Endpoint) *catalog.AppEndpoints {
	return &catalog.AppEndpoints{App: shop(app), Endpoints: endpoints}
}

// ours starts Isthmus: checkout may call orders, and orders nobody, as long as no other
// objects are given.
func ours(t testing.TB, objects ...catalog.Object) *isthmus {
	t.Helper()
	if objects == nil {
		objects = []catalog.Object{selection("checkout", catalog.Endpoint{App: shop("orders")}), selection("orders")}
	}
	return start(t, t.TempDir(), Settings{}, objects...)
}

// anybody may register services at any address.
var anybody = destination.Delegates{{Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, Apps: []string{"*"}}}

func secret(t testing.TB, text string) settings.Secret {
	t.Helper()
	return *serverstest.Secret(t, text)
}

func start(t testing.TB, dir string, s Settings, objects ...catalog.Object) *isthmus {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	i := &isthmus{topology: topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}, log)}
	i.tokens = map[string]string{"checkout": "c-token-1", "orders": "o-token-1", "stranger": serverstest.ConsulStranger, "anonymous": ""}
	for _, app := range []string{"checkout", "orders"} {
		s.Tokens = append(s.Tokens, Token{"shop/" + app, secret(t, i.tokens[app])})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	run := func(f func(context.Context) error) {
		parts.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	i.stop = sync.OnceFunc(func() { cancel(); parts.Wait() })
	t.Cleanup(i.stop)
	run(i.topology.Run)
	i.apply(t, objects...)
	i.server, err = New(Config{Settings: s, Cluster: "west", Address: l.Addr().String(), Directory: dir, Topology: i.topology, Registering: edge.Registering{Delegates: anybody}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.server.Restore(ctx); err != nil {
		t.Fatal(err)
	}
	run(i.server.Run)
	run(func(ctx context.Context) error { return i.server.Serve(ctx, l) })
	i.name, i.url = "isthmus", "http://"+l.Addr().String()
	return i
}

// apply gives the topology its objects.
func (i *isthmus) apply(t testing.TB, objects ...catalog.Object) {
	t.Helper()
	if _, err := i.topology.Apply(t.Context(), topology.Change{Objects: &topology.ObjectChange{Full: true, Put: objects}}); err != nil {
		t.Fatal(err)
	}
}

// response is one as a client sees it.
type response struct {
	code   int
	header http.Header
	body   string
}

// do sends one request, with a header "X-Consul-Token" unless the app is empty.
func (a *agent) do(t testing.TB, app, method, path, body string) response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token := a.tokens[app]; token != "" {
		q.Header.Set("X-Consul-Token", token)
	}
	return a.send(t, q)
}

func (a *agent) send(t testing.TB, q *http.Request) response {
	t.Helper()
	r, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{r.StatusCode, r.Header, string(text)}
}

// both runs a test against a real agent and against ours.
func both(t *testing.T, test func(*testing.T, *agent)) {
	t.Helper()
	t.Run("consul", func(t *testing.T) { test(t, consul(t)) })
	t.Run("isthmus", func(t *testing.T) { test(t, &ours(t).agent) })
}
