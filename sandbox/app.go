package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// App is a small app in this process, to stand behind a sidecar.
type App struct {
	Address string // host:port
	calls   atomic.Int64
	byPath  sync.Map // path, without its slash, to *atomic.Int64: calls over HTTP
}

// Reply is what an App answers, in JSON: who it is, and what reached it.
type Reply struct {
	App       string            `json:"app"`
	Namespace string            `json:"namespace"`
	Cluster   string            `json:"cluster"`
	Instance  string            `json:"instance"`
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Call      int64             `json:"call"` // how many calls this instance has had, this one included
	Header    map[string]string `json:"header"`
}

// AppOptions say who an App says it is.
type AppOptions struct {
	Cluster  string
	App      catalog.App
	Instance string // tells two instances of an app apart; its address by default
	GRPC     bool   // speaks gRPC, see [Daprd.Proxy], and not HTTP
}

// App starts an app on a free port. Over HTTP it takes its time for a call that asks
// for it, such as "hello?takes=20ms".
func (s *Sandbox) App(o AppOptions) (*App, error) {
	lis, err := listen(s.place, "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start app %s: %w", o.App, err)
	}
	a := &App{Address: lis.Addr().String()}
	if o.Instance == "" {
		o.Instance = a.Address
	}
	serve, stop := a.http(o)
	if o.GRPC {
		serve, stop = a.grpc(o)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := serve(lis); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("app stopped serving", "app", o.App.String(), "cluster", o.Cluster, "err", err)
		}
	}()
	s.onClose(func() {
		stop()
		<-served
	})
	return a, nil
}

func (a *App) http(o AppOptions) (serve func(net.Listener) error, stop func()) {
	server := &http.Server{Handler: a.handler(o)}
	return server.Serve, func() { _ = server.Close() } // it reports listeners that were closed already
}

// Calls is how many calls the app has had.
func (a *App) Calls() int64 { return a.calls.Load() }

// CallsOf is how many calls of a method the app has had over HTTP.
func (a *App) CallsOf(method string) int64 {
	if n, ok := a.byPath.Load(method); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

func (a *App) handler(o AppOptions) http.Handler {
	mux := http.NewServeMux()
	// daprd asks these of every app; they are no calls.
	for _, path := range []string{"/dapr/", "/healthz"} {
		mux.HandleFunc(path, http.NotFound)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := a.byPath.LoadOrStore(strings.TrimPrefix(r.URL.Path, "/"), new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		takes, _ := time.ParseDuration(r.FormValue("takes"))
		time.Sleep(takes)
		reply := a.reply(o)
		reply.Method, reply.Path = r.Method, r.URL.Path
		for name := range r.Header {
			reply.Header[name] = r.Header.Get(name)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(reply) // the caller has gone when this fails
	})
	return mux
}

// reply is what an app says of itself, and counts the call.
func (a *App) reply(o AppOptions) Reply {
	return Reply{
		App: o.App.ID, Namespace: o.App.Namespace, Cluster: o.Cluster, Instance: o.Instance,
		Call: a.calls.Add(1), Header: map[string]string{},
	}
}

func splitAddress(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", fmt.Errorf("address %q: want host:port: %w", address, err)
	}
	return host, port, nil
}
