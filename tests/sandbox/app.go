package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// App is a small app in this process, to stand behind a sidecar.
type App struct {
	Address string // host:port
	s       *Sandbox
	options AppOptions
	stop    func() // ends the server that runs, and waits for it
	calls   atomic.Int64
	slow    atomic.Int64 // what each call takes longer, in nanoseconds

	mu    sync.Mutex
	begun map[string]Begun // by method
	free  chan struct{}    // has room for a call to work on; nil: no limit
}

// Begun is how often a method was called, and when it was first.
type Begun struct {
	Count int
	First time.Time
}

// Reply is what an App answers, in JSON: who it is, and what reached it.
type Reply struct {
	App       string            `json:"app"`
	Namespace string            `json:"namespace"`
	Cluster   string            `json:"cluster"`
	Instance  string            `json:"instance"`
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Call      int64             `json:"call"`   // how many calls this instance has had, this one included
	Header    map[string]string `json:"header"` // all values of each, with commas between them
}

// AppOptions say who an App says it is.
type AppOptions struct {
	Cluster  string
	App      catalog.App
	Instance string // tells two instances of an app apart; its address by default
	GRPC     bool   // speaks gRPC, and not HTTP: it takes [Proxy], and Dapr's OnInvoke
	Actors   string // a type of actors that it hosts, by HTTP; empty: none
	AtOnce   int    // how many calls it works on at a time; 0: any number
}

// App starts an app on a free port. It takes its time for a call that asks
// for it, such as "hello?takes=20ms".
func (s *Sandbox) App(o AppOptions) (*App, error) {
	a := &App{Address: "127.0.0.1:0", s: s, options: o, begun: map[string]Begun{}}
	if o.AtOnce > 0 {
		a.free = make(chan struct{}, o.AtOnce)
	}
	if err := a.Start(); err != nil {
		return nil, err
	}
	s.onClose(a.Stop)
	return a, nil
}

// Start starts an app that was stopped, at the address that it had.
func (a *App) Start() error {
	lis, err := listen(a.s.place, a.Address)
	if err != nil {
		return fmt.Errorf("start app %s: %w", a.options.App, err)
	}
	a.Address = lis.Addr().String()
	a.options.Instance = cmp.Or(a.options.Instance, a.Address)
	o := a.options
	serve, stop := a.http()
	if o.GRPC {
		serve, stop = a.grpc()
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := serve(lis); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.s.log.Error("app stopped serving", "app", o.App.String(), "cluster", o.Cluster, "err", err)
		}
	}()
	a.stop = func() {
		stop()
		<-served
	}
	return nil
}

// Stop ends the app: nothing listens at its address any more, and calls under way are cut off.
func (a *App) Stop() { a.stop() }

func (a *App) http() (serve func(net.Listener) error, stop func()) {
	server := &http.Server{Handler: a.handler()}
	return server.Serve, func() { _ = server.Close() } // it reports listeners that were closed already
}

// Calls is how many calls the app has had.
func (a *App) Calls() int64 { return a.calls.Load() }

// Begun is what the app has had of a method: a path without its slash, or the name of a call
// by [ProxyNamed].
func (a *App) Begun(method string) Begun {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun[method]
}

// Slow has each call take so much longer from now on.
func (a *App) Slow(by time.Duration) { a.slow.Store(int64(by)) }

// begin notes a call, and takes its time for it, until ctx ends.
func (a *App) begin(ctx context.Context, method, takes string) {
	a.mu.Lock()
	b := a.begun[method]
	if b.Count++; b.Count == 1 {
		b.First = time.Now()
	}
	a.begun[method] = b
	a.mu.Unlock()
	if a.free != nil {
		select {
		case a.free <- struct{}{}:
			defer func() { <-a.free }()
		case <-ctx.Done():
			return
		}
	}
	lasts, _ := time.ParseDuration(takes)
	live.Sleep(ctx, lasts+time.Duration(a.slow.Load()))
}

func (a *App) handler() http.Handler {
	mux := http.NewServeMux()
	// daprd asks these of every app; they are no calls.
	for _, path := range []string{"/dapr/", "/healthz"} {
		mux.HandleFunc(path, http.NotFound)
	}
	if a.options.Actors != "" {
		mux.HandleFunc("GET /dapr/config", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"entities": []string{a.options.Actors}}) // daprd has gone when this fails
		})
		mux.HandleFunc("DELETE /actors/{type}/{id}", func(http.ResponseWriter, *http.Request) {})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.begin(r.Context(), strings.TrimPrefix(r.URL.Path, "/"), r.URL.Query().Get("takes"))
		reply := a.reply()
		reply.Method, reply.Path = r.Method, r.URL.Path
		for name := range r.Header {
			reply.Header[name] = strings.Join(r.Header.Values(name), ", ")
		}
		w.Header().Set("Content-Type", "application/json")
		if status, err := strconv.Atoi(r.URL.Query().Get("status")); err == nil {
			w.WriteHeader(status)
		}
		_ = json.NewEncoder(w).Encode(reply) // the caller has gone when this fails
	})
	return mux
}

// reply is what an app says of itself, and counts the call.
func (a *App) reply() Reply {
	o := a.options
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
