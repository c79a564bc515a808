package pages

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// receive takes every message of a stream.
func receive[T any](stream grpc.ServerStreamingClient[T], err error, take func(*T)) error {
	return wire.Receive(stream, err, func(m *T) error {
		take(m)
		return nil
	})
}

func (r *request) status() (*v1alpha1.StatusResponse, error) {
	answer, err := v1alpha1.NewStatusClient(r.Conn).Status(r.ctx, &v1alpha1.StatusRequest{})
	if err == nil {
		r.watch.saw(answer)
	}
	return answer, err
}

// foundApps are the apps that were asked for.
type foundApps struct {
	apps             []*v1alpha1.AppState
	matched, leftOut int // on all pages
}

// apps are those that are asked for.
func (r *request) apps(req *v1alpha1.AppsRequest) (all foundApps, err error) {
	stream, err := v1alpha1.NewInventoryClient(r.Conn).Apps(r.ctx, req)
	err = receive(stream, err, func(m *v1alpha1.AppsResponse) {
		all.apps = append(all.apps, m.GetApps()...)
		all.matched, all.leftOut = max(all.matched, int(m.GetMatched())), max(all.leftOut, int(m.GetLeftOut()))
	})
	return all, err
}

func (r *request) sidecars(req *v1alpha1.SidecarsRequest) (all []*v1alpha1.SidecarState, err error) {
	stream, err := v1alpha1.NewInventoryClient(r.Conn).Sidecars(r.ctx, req)
	err = receive(stream, err, func(m *v1alpha1.SidecarsResponse) {
		all = append(all, m.GetSidecars()...)
	})
	return all, err
}

// calls are who may call callees, who has, and how many apps without a selection may.
func (r *request) calls(req *v1alpha1.CallsRequest) (all []*v1alpha1.Call, undeclared uint32, err error) {
	stream, err := v1alpha1.NewInventoryClient(r.Conn).Calls(r.ctx, req)
	err = receive(stream, err, func(m *v1alpha1.CallsResponse) {
		for _, one := range m.GetCallees() {
			undeclared = one.GetUndeclared()
			all = append(all, show.CallsOf(one)...)
		}
	})
	return all, undeclared, err
}

// events are those since a time, the newest first.
func (r *request) events(since time.Time) (all []*v1alpha1.Event, err error) {
	stream, err := v1alpha1.NewInventoryClient(r.Conn).Events(r.ctx, &v1alpha1.EventsRequest{SinceUnixMs: since.UnixMilli()})
	err = receive(stream, err, func(m *v1alpha1.EventsResponse) {
		all = append(all, m.GetEvents()...)
	})
	return all, err
}

func (r *request) objects(key catalog.Key) ([]show.Object, error) {
	answer, err := v1alpha1.NewObjectsClient(r.Conn).Get(r.ctx, &v1alpha1.GetRequest{Key: wire.Key(key)})
	if err != nil {
		return nil, err
	}
	return show.ObjectsOf(answer)
}

// inForce are objects that lookups follow, and how many match.
func (r *request) inForce(req *v1alpha1.GetRequest) ([]show.Object, int, error) {
	req.InForce = true
	answer, err := v1alpha1.NewObjectsClient(r.Conn).Get(r.ctx, req)
	if err != nil {
		return nil, 0, err
	}
	all, err := show.ObjectsOf(answer)
	return all, int(answer.GetMatched()), err
}

func clusterKey(name string) catalog.Key { return catalog.Key{Kind: catalog.KindCluster, Name: name} }

// graphs keeps the graph of the newest revision that somebody has asked for, for all.
type graphs struct {
	mu       sync.Mutex
	revision uint64
	graph    *v1alpha1.GraphResponse
}

// graph is the graph that is asked for, with the calls seen. The whole one is kept while the revision stands;
// those who ask for it at once wait for one answer.
func (r *request) graph(req *v1alpha1.GraphRequest) (*v1alpha1.GraphResponse, error) {
	g, err := fetchGraph(r.ctx, r.Conn, req)
	if err != nil {
		return nil, err
	}
	return g, addSeen(r, g)
}

// wholeGraph is [request.graph] of everything.
func (r *request) wholeGraph() (*v1alpha1.GraphResponse, error) {
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	r.graphs.mu.Lock()
	defer r.graphs.mu.Unlock()
	if r.graphs.graph == nil || r.graphs.revision != now.GetRevision() {
		g, err := fetchGraph(r.ctx, r.Conn, &v1alpha1.GraphRequest{})
		if err != nil {
			return nil, err
		}
		r.graphs.graph, r.graphs.revision = g, now.GetRevision()
	}
	kept := r.graphs.graph
	g := &v1alpha1.GraphResponse{
		Cluster: kept.GetCluster(), Calls: slices.Clone(kept.GetCalls()), Apps: slices.Clone(kept.GetApps()), Clusters: slices.Clone(kept.GetClusters()),
	}
	return g, addSeen(r, g)
}

func addSeen(r *request, g *v1alpha1.GraphResponse) error {
	seen, _, err := r.calls(&v1alpha1.CallsRequest{Seen: true})
	show.AddSeen(g, seen)
	return err
}

func fetchGraph(ctx context.Context, conn grpc.ClientConnInterface, req *v1alpha1.GraphRequest) (*v1alpha1.GraphResponse, error) {
	g := &v1alpha1.GraphResponse{}
	stream, err := v1alpha1.NewInventoryClient(conn).Graph(ctx, req)
	err = receive(stream, err, func(m *v1alpha1.GraphResponse) { show.AddGraph(g, m) })
	return g, err
}

// appPath is the page of an app, namespace/app-id.
func appPath(app string) string {
	namespace, id, _ := strings.Cut(app, "/")
	return "/apps/" + url.PathEscape(namespace) + "/" + url.PathEscape(id)
}

// objectPath is the page of an object.
func objectPath(k catalog.Key) string {
	path := "/objects/" + url.PathEscape(string(k.Kind))
	if k.Namespace != "" {
		path += "/" + url.PathEscape(k.Namespace)
	}
	return path + "/" + url.PathEscape(k.Name)
}

// linkPath is the page of another cluster.
func linkPath(cluster string) string { return "/links/" + url.PathEscape(cluster) }

// explainPath is the page that explains a call.
func explainPath(caller, callee string) string {
	return withQuery("/explain", "from", caller, "to", callee)
}

// outside is an address of another site. What is none of the web leads nowhere.
func outside(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || plain(address) != address {
		return "about:invalid"
	}
	return address
}

// withQuery is a path with names and values in turn.
func withQuery(path string, query ...string) string {
	sign := "?"
	for i := 0; i+1 < len(query); i += 2 {
		path += sign + query[i] + "=" + url.QueryEscape(query[i+1])
		sign = "&"
	}
	return path
}

// pathApp is the app that a path names.
func (r *request) pathApp() (catalog.App, error) {
	app := catalog.App{Namespace: r.PathValue("namespace"), ID: r.PathValue("id")}
	if err := app.Check(); err != nil {
		return app, refuse(http.StatusBadRequest, "app %s: %v", app, err)
	}
	return app, nil
}

// pathKey is the object that a path names.
func (r *request) pathKey() (catalog.Key, error) {
	return checkedKey(catalog.Key{Kind: catalog.Kind(r.PathValue("kind")), Namespace: r.PathValue("namespace"), Name: r.PathValue("name")})
}

func checkedKey(key catalog.Key) (catalog.Key, error) {
	if err := api.CheckKey(key); err != nil {
		return key, refuse(http.StatusBadRequest, "object %s: %v", key, err)
	}
	return key, nil
}

// ago is the time since a moment, in Unix milliseconds, in words.
func ago(unixMs int64, now time.Time) string {
	if unixMs == 0 {
		return "never"
	}
	return show.Span(now.Sub(time.UnixMilli(unixMs))) + " ago"
}

// keyOf is for templates.
func keyOf(k *v1alpha1.ObjectKey) catalog.Key { return wire.KeyOf(k) }
