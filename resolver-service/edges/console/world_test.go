package console_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/consoletest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// world is three clusters with links to each other. The console is that of west.
type world struct {
	t                 *testing.T
	west, east, north *cluster
	began             time.Time
	browser           *consoletest.Browser
	*rand.Rand
}

// cluster is a resolver service with the store that is part of it, and a client.
type cluster struct {
	t       *testing.T
	ca      *identitytest.CA
	name    string
	text    string // isthmus.yaml
	dir     string
	gateway string
	address string           // of listen.resolver
	conn    *grpc.ClientConn // of an operator
	stop    func()
}

// patience is how long a test waits for what should happen.
const patience = time.Minute

// newWorld starts the clusters, each with apps and with links to the others.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	t.Parallel() // each waits for its services most of the time
	w := &world{t: t, Rand: rand.New(rand.NewPCG(seed, 19))}
	ca := identitytest.NewCA(t)
	w.west, w.east, w.north = newCluster(t, "west", ca), newCluster(t, "east", ca), newCluster(t, "north", ca)
	all := []*cluster{w.west, w.east, w.north}
	for _, c := range all {
		c.start()
		w.began = time.Now()
		for _, o := range all {
			if o != c {
				c.apply(linkTo(o))
			}
		}
	}
	w.browser = w.west.browser()
	return w
}

// linkTo is a Cluster object for a cluster of the world. What comes back takes its traffic slowly.
func linkTo(c *cluster) *catalog.Cluster {
	return &catalog.Cluster{Name: c.name, Gateways: []string{c.gateway}, StaleAfter: 5 * time.Second, RampUp: 10 * time.Minute}
}

func newCluster(t *testing.T, name string, ca *identitytest.CA) *cluster {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, ca: ca, name: name, dir: t.TempDir(), gateway: fmt.Sprint("127.0.0.1:", port)}
	f := ca.Config(identity.ServiceApp("", name)).Files
	c.text = fmt.Sprintf("cluster: %s\ndataDir: %s\nidentity: {files: {cert: %s, key: %s, ca: %s}}\ngateway: {drainTimeout: 100ms}\n"+
		"listen: {resolver: '127.0.0.1:0', gateway: '%s', console: '127.0.0.1:0'}\n", name, c.dir, f.Cert, f.Key, f.CA, c.gateway)
	return c
}

// start runs the service until the test ends, or stop.
func (c *cluster) start() {
	c.t.Helper()
	cfg, err := resolverservice.Parse("isthmus.yaml", []byte(c.text))
	if err != nil {
		c.t.Fatal(err)
	}
	service := resolverservice.New(cfg, slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("cluster", c.name))
	if err := service.Listen(); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	c.address = service.Addr("resolver").String()
	c.conn = c.connect(identity.CLIApp(""))
	ended := false
	c.stop = func() {
		if ended {
			return
		}
		ended = true
		c.conn.Close()
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	}
	c.t.Cleanup(c.stop)
	c.within("objects can be read", func() bool {
		_, err := v1alpha1.NewObjectsClient(c.conn).Apply(c.t.Context(), &v1alpha1.ApplyRequest{DryRun: true})
		return err == nil
	})
}

// connect connects as an app.
func (c *cluster) connect(app catalog.App) *grpc.ClientConn {
	c.t.Helper()
	source, err := identity.New(c.ca.Config(app), app, slog.New(slog.DiscardHandler))
	if err == nil {
		err = source.Load(c.t.Context())
	}
	if err != nil {
		c.t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(source.ClientCredentials(identity.Anyone)))
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

func (c *cluster) within(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s: not within %s: %s", c.name, patience, what)
		}
	}
}

// entry is a URL that lets a browser in once, which the service keeps in a file.
func (c *cluster) entry() string {
	c.t.Helper()
	var url []byte
	c.within("the console's URL", func() (there bool) {
		var err error
		url, err = os.ReadFile(filepath.Join(c.dir, "console-"+c.name+".url"))
		return err == nil && len(url) > 0
	})
	return string(url)
}

// browser signs in at the console.
func (c *cluster) browser() *consoletest.Browser {
	c.t.Helper()
	b, err := consoletest.Enter(c.t.Context(), c.entry())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(b.Close)
	return b
}

// apply writes objects past the console, as another operator does.
func (c *cluster) apply(objects ...catalog.Object) {
	c.t.Helper()
	req := &v1alpha1.ApplyRequest{}
	for _, o := range objects {
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: api.EncodeJSON(o)})
	}
	if _, err := v1alpha1.NewObjectsClient(c.conn).Apply(c.t.Context(), req); err != nil {
		c.t.Fatal(err)
	}
}

// object is what the store has, with its revision; nil and "absent" where there is none.
func (c *cluster) object(key catalog.Key) (catalog.Object, string) {
	c.t.Helper()
	answer, err := v1alpha1.NewObjectsClient(c.conn).Get(c.t.Context(), &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: string(key.Kind), Namespace: key.Namespace, Name: key.Name}})
	if err != nil || len(answer.GetObjects()) == 0 {
		return nil, "absent"
	}
	o, err := api.DecodeJSON(api.KeyPath(key), answer.GetObjects()[0].GetJson())
	if err != nil {
		c.t.Fatal(err)
	}
	return o, answer.GetObjects()[0].GetRevision()
}

func (c *cluster) resolve(from string, caller, app catalog.App) *v1alpha1.Decision {
	c.t.Helper()
	d, err := v1alpha1.NewResolverClient(c.conn).Resolve(c.t.Context(), &v1alpha1.ResolveRequest{Caller: wire.App(caller), App: wire.App(app), Cluster: from})
	if err != nil {
		c.t.Fatalf("%s %s asks for %s: %v", from, caller, app, err)
	}
	return d
}

// view is what the sidecars of an app are sent.
func (c *cluster) view(app catalog.App) map[catalog.App]*catalog.Entry {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	conn := c.connect(app)
	defer conn.Close()
	stream, err := v1alpha1.NewResolverClient(conn).Watch(ctx)
	if err == nil {
		err = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: &v1alpha1.Hello{App: wire.App(app)}}})
	}
	var first *v1alpha1.WatchResponse
	if err == nil {
		first, err = stream.Recv()
	}
	view := map[catalog.App]*catalog.Entry{}
	for _, put := range first.GetPut() {
		var e *catalog.Entry
		if e, err = wire.ParseEntry(put); err == nil {
			view[e.App] = e
		}
	}
	if err != nil {
		c.t.Fatalf("view of %s: %v", app, err)
	}
	return view
}

// status is what isthmus status asks for.
func (c *cluster) status() *v1alpha1.StatusResponse {
	c.t.Helper()
	s, err := v1alpha1.NewStatusClient(c.conn).Status(c.t.Context(), &v1alpha1.StatusRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// hears waits until a peer is in a state.
func (c *cluster) hears(peer *cluster, state string) {
	c.t.Helper()
	c.within(peer.name+" is "+state, func() bool {
		return slices.ContainsFunc(c.status().GetPeers(), func(p *v1alpha1.PeerStatus) bool {
			return p.GetCluster() == peer.name && p.GetState() == state
		})
	})
}

func (w *world) get(path string) *consoletest.Page {
	w.t.Helper()
	p, err := w.browser.Get(w.t.Context(), path)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// page is a page that must be shown.
func (w *world) page(path string) *consoletest.Page {
	w.t.Helper()
	p := w.get(path)
	if p.Status != http.StatusOK {
		w.t.Fatalf("%s: status %d: %s", path, p.Status, p.Text())
	}
	return p
}

func (w *world) post(path string, form map[string][]string) *consoletest.Page {
	w.t.Helper()
	p, err := w.browser.Post(w.t.Context(), path, form)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) chance(percent int) bool { return w.IntN(100) < percent }

func one[T any](w *world, of []T) T { return of[w.IntN(len(of))] }

// receive takes every message of a stream.
func receive[T any](stream grpc.ServerStreamingClient[T], err error, take func(*T)) error {
	for err == nil {
		var m *T
		if m, err = stream.Recv(); err == nil {
			take(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
