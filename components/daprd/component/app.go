package component

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dapr/dapr/pkg/channel"
	"github.com/dapr/dapr/pkg/config"
	"github.com/dapr/dapr/pkg/runtime"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isthmus-mesh/isthmus/live"
)

const (
	// connectEvery is how often the app is connected to, and confirmEvery how often while it
	// refuses. So many refusals in a row, a second apart in all, say that it is dead.
	connectEvery   = time.Second
	confirmEvery   = 500 * time.Millisecond
	refusals       = 3
	connectTimeout = time.Second
)

// App is the app behind a sidecar, as daprd calls it.
type App struct {
	address string // host:port
	tls     bool
	grpc    bool
	h2c     bool

	checks    bool // with Dapr's app health check
	path      string
	interval  time.Duration
	timeout   time.Duration
	threshold int
}

// AppOf is the app that daprd's arguments name, os.Args as they come; nil if none takes
// calls. It reads them as daprd does, which takes "-flag" for "--flag".
func AppOf(args []string) *App {
	if len(args) == 0 {
		return nil
	}
	doubled := make([]string, len(args)-1)
	for i, a := range args[1:] {
		if len(a) > 2 && a[0] == '-' && a[1] != '-' {
			a = "-" + a
		}
		doubled[i] = a
	}
	flags := pflag.NewFlagSet("daprd", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.ParseErrorsAllowlist.UnknownFlags = true
	a := &App{}
	port := flags.String("app-port", "", "")
	host := flags.String("app-channel-address", runtime.DefaultChannelAddress, "")
	protocol := flags.String("app-protocol", "http", "")
	ssl := flags.Bool("app-ssl", false, "")
	flags.BoolVar(&a.checks, "enable-app-health-check", false, "")
	flags.StringVar(&a.path, "app-health-check-path", runtime.DefaultAppHealthCheckPath, "")
	seconds := flags.Int("app-health-probe-interval", 0, "")
	milliseconds := flags.Int("app-health-probe-timeout", 0, "")
	flags.IntVar(&a.threshold, "app-health-threshold", 0, "")
	if err := flags.Parse(doubled); err != nil || *port == "" || *port == "0" {
		return nil // daprd says what is wrong with them
	}
	a.address = net.JoinHostPort(*host, *port)
	p := strings.ToLower(*protocol)
	a.grpc, a.h2c = strings.HasPrefix(p, "grpc"), p == "h2c"
	a.tls = p == "https" || p == "grpcs" || *ssl && !a.h2c
	a.interval = cmp.Or(time.Duration(max(*seconds, 0))*time.Second, config.AppHealthConfigDefaultProbeInterval)
	a.timeout = cmp.Or(time.Duration(max(*milliseconds, 0))*time.Millisecond, config.AppHealthConfigDefaultProbeTimeout)
	if a.threshold < 1 {
		a.threshold = int(config.AppHealthConfigDefaultThreshold)
	}
	return a
}

// condition is how an app is: well if nothing speaks against it.
type condition struct {
	turn func(error)

	mu      sync.Mutex
	refused error // it refuses connections
	failed  error // Dapr's app health check
	well    bool  // as was said last
}

// set notes one of the two, and says what it makes of both if that is another.
func (c *condition) set(what *error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what = err
	if well := c.refused == nil && c.failed == nil; well != c.well {
		c.well = well
		c.turn(cmp.Or(c.refused, c.failed))
	}
}

// follow says whether the app can take calls until ctx ends. It is well until it refuses
// connections or, with Dapr's app health check, from the first check that succeeds.
func (a *App) follow(ctx context.Context, turn func(error)) {
	c := &condition{turn: turn}
	if a == nil {
		turn(nil)
		return
	}
	var parts sync.WaitGroup
	if a.checks {
		c.failed = errors.New("its first health check has not ended")
		parts.Go(func() { a.check(ctx, c) })
	}
	c.set(&c.refused, nil)
	a.knock(ctx, c)
	parts.Wait()
}

// knock connects to the app again and again. That it is slow says nothing: only a refusal
// does, which the kernel sends when nobody listens.
func (a *App) knock(ctx context.Context, c *condition) {
	pause := connectEvery
	for n := 0; live.Sleep(ctx, pause); {
		err := a.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, syscall.ECONNREFUSED):
			pause = confirmEvery
			if n++; n >= refusals {
				c.set(&c.refused, fmt.Errorf("the app refuses connections: %w", err))
			}
		case err == nil:
			c.set(&c.refused, nil)
			fallthrough
		default:
			n, pause = 0, connectEvery
		}
	}
}

// connect makes a connection and closes it. TLS is begun where it is spoken: servers log
// who leaves before.
func (a *App) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if a.tls {
		_ = tls.Client(conn, anyCertificate()).HandshakeContext(ctx) // it accepted the connection
	}
	return nil
}

// anyCertificate takes the app's certificate as daprd does.
func anyCertificate() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: channel.AppChannelMinTLSVersion}
}

// check makes Dapr's app health check, beside daprd, which tells nobody of its own. An app
// that failed is well after two checks: daprd refuses its calls until it has made one.
func (a *App) check(ctx context.Context, c *condition) {
	probe, end := a.prober()
	defer end()
	for good, bad, enough := 0, 0, 1; ctx.Err() == nil; live.Sleep(ctx, a.interval) {
		limit, cancel := context.WithTimeout(ctx, a.timeout)
		err := probe(limit)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			bad = 0
			if good++; good >= enough {
				c.set(&c.failed, nil)
				enough = 1
			}
		default:
			good = 0
			if bad++; bad >= a.threshold {
				c.set(&c.failed, fmt.Errorf("the app's health check has failed %d times: %w", bad, err))
			}
			if c.failed != nil { // which nobody else sets
				enough = 2
			}
		}
	}
}

// prober returns one health check as daprd makes it, and what ends its connections.
func (a *App) prober() (probe func(context.Context) error, end func()) {
	if a.grpc {
		return a.grpcProber()
	}
	scheme, transport := "http", &http.Transport{Protocols: new(http.Protocols)} // no proxy
	transport.Protocols.SetHTTP1(!a.h2c)
	transport.Protocols.SetUnencryptedHTTP2(a.h2c)
	if a.tls {
		scheme, transport.TLSClientConfig = "https", anyCertificate()
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	url := scheme + "://" + a.address + "/" + strings.TrimPrefix(a.path, "/")
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, res.Body) // for the next one to have the connection
		_ = res.Body.Close()
		if res.StatusCode < 200 || res.StatusCode > 299 {
			return fmt.Errorf("GET %s: status %d", url, res.StatusCode)
		}
		return nil
	}, client.CloseIdleConnections
}

func (a *App) grpcProber() (probe func(context.Context) error, end func()) {
	security := insecure.NewCredentials()
	if a.tls {
		security = credentials.NewTLS(anyCertificate())
	}
	again := backoff.DefaultConfig
	again.MaxDelay = a.interval
	conn, err := grpc.NewClient("passthrough:///"+a.address, grpc.WithTransportCredentials(security), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: a.timeout}))
	if err != nil {
		return func(context.Context) error { return err }, func() {}
	}
	return func(ctx context.Context) error {
		return conn.Invoke(ctx, "/dapr.proto.runtime.v1.AppCallbackHealthCheck/HealthCheck", &emptypb.Empty{}, &emptypb.Empty{})
	}, func() { _ = conn.Close() }
}
