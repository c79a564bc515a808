package component

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/dapr/cmd/daprd/options"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
)

func TestTheAppIsThatOfDaprdsArguments(t *testing.T) {
	for args, want := range map[string]App{
		"--app-port 8080":                                       {address: "127.0.0.1:8080"},
		"-app-port=8080 -app-protocol gRPC":                     {address: "127.0.0.1:8080", grpc: true},
		"--app-port 8080 --app-protocol grpcs":                  {address: "127.0.0.1:8080", grpc: true, tls: true},
		"--app-port 8080 --app-protocol https":                  {address: "127.0.0.1:8080", tls: true},
		"--app-port 8080 --app-ssl":                             {address: "127.0.0.1:8080", tls: true},
		"--app-port 8080 --app-protocol h2c --app-ssl":          {address: "127.0.0.1:8080", h2c: true},
		"--app-channel-address ::1 --app-port 80 --enable-mtls": {address: "[::1]:80"},
		"--app-port 80 --enable-app-health-check --mode x":      {address: "127.0.0.1:80", checks: true},
		"--enable-app-health-check=true --app-port 80 --log-as-json --app-health-check-path up --app-health-probe-interval 2 --app-health-probe-timeout 30 --app-health-threshold 7": {
			address: "127.0.0.1:80", checks: true, path: "up", interval: 2 * time.Second, timeout: 30 * time.Millisecond, threshold: 7,
		},
	} {
		daprs, err := options.New(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if want.path == "" { // daprd's defaults
			want.path, want.threshold = daprs.AppHealthCheckPath, daprs.AppHealthThreshold
			want.interval = time.Duration(daprs.AppHealthProbeInterval) * time.Second
			want.timeout = time.Duration(daprs.AppHealthProbeTimeout) * time.Millisecond
		}
		if got := AppFromArgs(append([]string{"daprd"}, strings.Fields(args)...)); got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", args, got, want)
		}
	}
}

// healthApp is an app whose health endpoint answers with a status that tests set.
type healthApp struct {
	t      *testing.T
	at     string
	status atomic.Int64
	asked  atomic.Int64
	end    func()
}

func (f *healthApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.asked.Add(1)
	if r.URL.Path != "/healthz" {
		f.t.Errorf("asked for %s", r.URL.Path)
	}
	w.WriteHeader(int(f.status.Load()))
}

// start makes the app listen, at the same address each time.
func (f *healthApp) start(protocol string) {
	f.t.Helper()
	if f.at == "" {
		f.at = "127.0.0.1:0"
	}
	lis, err := net.Listen("tcp", f.at)
	if err != nil {
		f.t.Fatal(err)
	}
	f.at = lis.Addr().String()
	if strings.HasPrefix(protocol, "grpc") {
		f.startGRPC(lis, protocol == "grpcs")
		return
	}
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	_ = s.Listener.Close()
	s.Listener = lis
	switch protocol {
	case "https":
		s.StartTLS()
	case "h2c":
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	default:
		s.Start()
	}
	f.end = func() { s.CloseClientConnections(); s.Close() }
}

func (f *healthApp) startGRPC(lis net.Listener, secure bool) {
	var o []grpc.ServerOption
	if secure {
		s := httptest.NewTLSServer(nil) // for its certificate
		s.Close()
		o = append(o, grpc.Creds(credentials.NewTLS(s.TLS)))
	}
	g := grpc.NewServer(o...)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "dapr.proto.runtime.v1.AppCallbackHealthCheck", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "HealthCheck", Handler: func(_ any, _ context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			f.asked.Add(1)
			if f.status.Load() != http.StatusOK {
				return nil, status.Error(codes.Unavailable, "not now")
			}
			return &emptypb.Empty{}, nil
		}}},
	}, f)
	go func() { _ = g.Serve(lis) }()
	f.end = g.Stop
}

// The sidecar notices when its app stops and restarts, by every protocol. With Dapr's health check
// it also notices a failing check.
func TestAnInstanceDrainsWhileItsAppCantTakeCalls(t *testing.T) {
	for _, protocol := range []string{"http", "https", "h2c", "grpc", "grpcs"} {
		for _, checks := range []bool{false, true} {
			t.Run(protocol+" "+strconv.FormatBool(checks), func(t *testing.T) {
				t.Parallel()
				f := &healthApp{t: t}
				f.status.Store(http.StatusInternalServerError)
				f.start(protocol)
				defer func() { f.end() }()
				_, port, _ := net.SplitHostPort(f.at)
				app := AppFromArgs([]string{"daprd", "--app-port", port, "--app-protocol", protocol})
				app.checks, app.interval, app.threshold = checks, 100*time.Millisecond, 2
				service := servicetest.Start(t)
				c, o := sidecarOf(t, service, checkout, 50001), newSidecar(t)
				o.component.App = app
				if err := o.start(t, orders, 50002, withService(service)); err != nil {
					t.Fatal(err)
				}
				if checks {
					time.Sleep(500 * time.Millisecond)
					if at, err := c.find(orders); err == nil {
						t.Errorf("orders is at %s before it ever was healthy", at)
					}
					f.status.Store(http.StatusOK)
					c.waitForAddress(t, orders, 50002)
					f.status.Store(http.StatusInternalServerError)
					c.waitForAddress(t, orders, 0)
					f.status.Store(http.StatusOK)
				} else if f.asked.Load() != 0 {
					t.Error("its health was asked for without a health check")
				}
				c.waitForAddress(t, orders, 50002)
				f.end()
				died := time.Now()
				c.waitForAddress(t, orders, 0)
				t.Logf("out of views %s after its end", time.Since(died).Round(time.Millisecond))
				o.waitForAddress(t, checkout, 50001) // its own calls continue
				f.start(protocol)
				c.waitForAddress(t, orders, 50002)
				if err := o.component.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				c.waitForAddress(t, orders, 0)
			})
		}
	}
}

// healthChanges are the reports of an app's health, in order.
func healthChanges(app *App, d time.Duration) (said []bool) {
	ctx, end := context.WithTimeout(context.Background(), d)
	defer end()
	app.follow(ctx, func(err error) { said = append(said, err == nil) })
	return said
}

func TestOnlyRefusalsSpeakAgainstAnApp(t *testing.T) {
	if said := healthChanges(nil, time.Minute); len(said) != 1 || !said[0] {
		t.Errorf("without an app: %v", said)
	}
	// No process accepts connections here, so a handshake never ends.
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	for what, app := range map[string]*App{
		"one that is slow":                    {address: lis.Addr().String()},
		"one that is slow, with TLS":          {address: lis.Addr().String(), tls: true},
		"one whose name is not known for now": {address: "app.invalid:80"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if said := healthChanges(app, 4*time.Second); len(said) != 1 || !said[0] {
				t.Errorf("said to be well: %v; want that once", said)
			}
		})
	}
}
