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

	"github.com/isthmus-mesh/isthmus/internal/live"
)

const (
	// The sidecar connects to the app once per connectInterval, and once per confirmInterval while
	// the app refuses. After maxRefusals in a row, within a second in all, the app counts as dead.
	connectInterval = time.Second
	confirmInterval = 500 * time.Millisecond
	maxRefusals     = 3
	connectTimeout  = time.Second
)

// App says how daprd calls the app behind the sidecar.
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

// AppFromArgs returns the app that daprd's arguments describe, or nil if no app takes calls. args
// is os.Args, unchanged. As daprd does, it accepts "-flag" for "--flag".
func AppFromArgs(args []string) *App {
	flags := daprdFlags()
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
	if err := flags.Parse(doubleDashes(args)); err != nil || *port == "" || *port == "0" {
		return nil // daprd reports the mistake
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

// PlainTextFromArgs tells whether daprd's arguments leave mTLS off, so that calls between sidecars
// are plain text. args is os.Args, unchanged.
func PlainTextFromArgs(args []string) bool {
	flags := daprdFlags()
	mTLS := flags.Bool("enable-mtls", false, "")
	return flags.Parse(doubleDashes(args)) == nil && !*mTLS
}

// daprdFlags is a set for those of daprd's flags that matter here.
func daprdFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("daprd", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.ParseErrorsAllowlist.UnknownFlags = true
	return flags
}

// doubleDashes are the arguments without the program, with "--flag" for "-flag", as daprd takes
// them.
func doubleDashes(args []string) []string {
	var doubled []string
	for _, a := range args[min(len(args), 1):] {
		if len(a) > 2 && a[0] == '-' && a[1] != '-' {
			a = "-" + a
		}
		doubled = append(doubled, a)
	}
	return doubled
}

// appHealth says whether an app can take calls: it accepts connections, and passes Dapr's health
// check if that is on.
type appHealth struct {
	onChange func(error)

	mu          sync.Mutex
	refusal     error // why it refuses connections
	failedCheck error // Dapr's app health check
	healthy     bool  // as last reported
}

// set records one of the two errors, and calls onChange if the app's health changes by it.
func (h *appHealth) set(what *error, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*what = err
	if well := h.refusal == nil && h.failedCheck == nil; well != h.healthy {
		h.healthy = well
		h.onChange(cmp.Or(h.refusal, h.failedCheck))
	}
}

// follow reports whether the app can take calls, until ctx ends. The app is healthy until it
// refuses connections. With Dapr's app health check it is healthy from the first success.
func (a *App) follow(ctx context.Context, turn func(error)) {
	c := &appHealth{onChange: turn}
	if a == nil {
		turn(nil)
		return
	}
	var parts sync.WaitGroup
	if a.checks {
		c.failedCheck = errors.New("the app's first health check has not ended")
		parts.Go(func() { a.check(ctx, c) })
	}
	c.set(&c.refusal, nil)
	a.connectRepeatedly(ctx, c)
	parts.Wait()
}

// connectRepeatedly connects to the app again and again. Only a refusal counts against the app: the
// kernel sends it when no process listens. A slow app may still be well.
func (a *App) connectRepeatedly(ctx context.Context, c *appHealth) {
	pause := connectInterval
	for n := 0; live.Sleep(ctx, pause); {
		err := a.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, syscall.ECONNREFUSED):
			pause = confirmInterval
			if n++; n >= maxRefusals {
				c.set(&c.refusal, fmt.Errorf("the app refuses connections: %w", err))
			}
		case err == nil:
			c.set(&c.refusal, nil)
			fallthrough
		default:
			n, pause = 0, connectInterval
		}
	}
}

// connect makes a connection and closes it. With TLS it begins the handshake, since servers log
// connections that end before.
func (a *App) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if a.tls {
		_ = tls.Client(conn, anyCertificate()).HandshakeContext(ctx) // the app accepted the connection, which suffices
	}
	return nil
}

// anyCertificate accepts the app's certificate unchecked, as daprd does.
func anyCertificate() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: channel.AppChannelMinTLSVersion}
}

// check makes Dapr's app health check. daprd makes it, too, but shares its result with nobody. After
// a failure two checks have to succeed: daprd refuses calls until its own check has.
func (a *App) check(ctx context.Context, c *appHealth) {
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
				c.set(&c.failedCheck, nil)
				enough = 1
			}
		default:
			good = 0
			if bad++; bad >= a.threshold {
				c.set(&c.failedCheck, fmt.Errorf("the app's health check has failed %d times: %w", bad, err))
			}
			if c.failedCheck != nil { // only this goroutine sets it
				enough = 2
			}
		}
	}
}

// prober returns a function that makes one health check as daprd does, and one that closes its
// connections.
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
		_, _ = io.Copy(io.Discard, res.Body) // so that the next check can use the connection
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
