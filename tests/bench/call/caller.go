package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// The kinds of calls.
const (
	get = iota
	post
	proxied
	kinds
)

var kindNames = [kinds]string{"HTTP GET", "HTTP POST, 1 KiB", "gRPC, proxied"}

// The callees are the last parts of their addresses, so that a pattern of stock daprd's
// resolver leads to them without a lookup.
var (
	overHTTP = catalog.App{Namespace: "default", ID: "101"}
	overGRPC = catalog.App{Namespace: "default", ID: "102"}
)

// caller is a sidecar whose calls are measured.
type caller struct {
	*sandbox.Daprd
	name     string
	held     bool   // to the aim
	profiles string // host:port
	client   *http.Client
	proxied  *grpc.ClientConn

	cpu         [kinds]measure.Samples // microseconds for each call
	allocations [kinds]measure.Samples
}

// start starts a cluster, two callees, and the callers: stock daprd first.
func start(ctx context.Context, s *sandbox.Sandbox) ([]*caller, error) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return nil, err
	}
	west, err := s.Cluster(ctx, sandbox.ClusterOptions{Name: "west", Authority: authority})
	if err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	pattern := fmt.Sprintf("127.0.0.{appid}:%d", port)
	stock := fmt.Sprintf("apiVersion: dapr.io/v1alpha1\nkind: Configuration\nmetadata: {name: stock}\nspec: {nameResolution: {component: nameformat, version: v1, configuration: {format: %q}}}\n", pattern)
	for _, app := range []catalog.App{overHTTP, overGRPC} {
		if err := startCallee(ctx, s, west, app, strings.Replace(pattern, "{appid}", app.ID, 1)); err != nil {
			return nil, err
		}
	}
	var callers []*caller
	for _, c := range []*caller{{name: "stock daprd, nameformat"}, {name: "daprd with Isthmus", held: true}} {
		if err := c.start(ctx, s, west, stock); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		callers = append(callers, c)
	}
	return callers, nil
}

// startCallee starts an app and its sidecar.
func startCallee(ctx context.Context, s *sandbox.Sandbox, west *sandbox.Cluster, app catalog.App, at string) error {
	speaksGRPC, protocol := app == overGRPC, "http"
	if speaksGRPC {
		protocol = "grpc"
	}
	behind, err := s.App(sandbox.AppOptions{Cluster: "west", App: app, GRPC: speaksGRPC})
	if err != nil {
		return err
	}
	configuration, err := west.Configuration(sandbox.SidecarOptions{App: app})
	if err != nil {
		return err
	}
	_, err = s.Daprd(ctx, sandbox.DaprdOptions{
		Cluster: "west", App: app, AppAddress: behind.Address, AppProtocol: protocol, Internal: at, Sentry: west.Sentry, Configuration: configuration,
	})
	return err
}

// start starts the sidecar, and waits until its calls go through.
func (c *caller) start(ctx context.Context, s *sandbox.Sandbox, west *sandbox.Cluster, configuration string) error {
	port, err := sandbox.FreePort()
	if err != nil {
		return err
	}
	app := catalog.App{Namespace: "default", ID: strings.NewReplacer(" ", "-", ",", "").Replace(strings.ToLower(c.name))}
	if c.held {
		if configuration, err = west.Configuration(sandbox.SidecarOptions{App: app}); err != nil {
			return err
		}
	}
	c.Daprd, err = s.Daprd(ctx, sandbox.DaprdOptions{
		App: app, Stock: strings.HasPrefix(c.name, "stock"), Sentry: west.Sentry, Configuration: configuration,
		Args: []string{"--enable-profiling", "--profile-port", strconv.Itoa(port), "--log-level", "warn"},
	})
	if err != nil {
		return err
	}
	c.profiles = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	c.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	if c.proxied, err = c.Dial(); err != nil {
		return err
	}
	for kind := range kinds {
		err := measure.Await(ctx, kindNames[kind], 100*time.Millisecond, func() error { return c.call(ctx, kind) })
		if err != nil {
			return err
		}
	}
	return nil
}

// body is that of a POST.
var body = bytes.Repeat([]byte{'x'}, 1024)

func (c *caller) call(ctx context.Context, kind int) error {
	if kind == proxied {
		_, err := sandbox.Proxy(ctx, c.proxied, overGRPC.ID, nil)
		return err
	}
	method, content := http.MethodGet, io.Reader(nil)
	if kind == post {
		method, content = http.MethodPost, bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.InvokeURL(overHTTP.ID, "hello"), content)
	if err != nil {
		return err
	}
	return c.do(req, io.Discard)
}

// do makes a request, and writes its answer.
func (c *caller) do(req *http.Request, to io.Writer) error {
	res, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return fmt.Errorf("%s %s: status %d: %s", req.Method, req.URL, res.StatusCode, text)
	}
	_, err = io.Copy(to, res.Body)
	return err
}

// pprof reads a profile of the sidecar.
func (c *caller) pprof(ctx context.Context, path string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.profiles+"/debug/pprof/"+path, nil)
	if err != nil {
		return err
	}
	return c.do(req, to)
}

// mallocs is how many objects the sidecar has allocated.
func (c *caller) mallocs(ctx context.Context) (n uint64, err error) {
	var text strings.Builder
	if err := c.pprof(ctx, "heap?debug=1", &text); err != nil {
		return 0, err
	}
	const line = "\n# Mallocs = "
	_, after, ok := strings.Cut(text.String(), line)
	if !ok {
		return 0, fmt.Errorf("the heap profile of %s has no line%s", c.name, line)
	}
	_, err = fmt.Sscan(after, &n)
	return n, err
}

// profile has calls of all kinds made, and keeps a profile of what the sidecar did meanwhile,
// if there is a directory for it.
func (c *caller) profile(ctx context.Context, dir string, o options) (err error) {
	if dir == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, c.App.ID+".pprof"))
	if err != nil {
		return err
	}
	defer f.Close()
	done := make(chan error, 1)
	go func() { done <- c.pprof(ctx, "profile?seconds=15", f) }()
	for {
		select {
		case err := <-done:
			return err
		default:
		}
		for kind := range kinds {
			if err := c.make(ctx, kind, o); err != nil {
				return err
			}
		}
	}
}
