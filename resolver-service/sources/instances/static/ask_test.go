package static

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// at is an instance at an address, with a check of it.
func at(address string, check catalog.HealthCheck) *catalog.AppInstance {
	o := named("one")
	o.Address = netip.MustParseAddrPort(address)
	check.Port = o.Address.Port()
	check.Interval, check.Timeout, check.HealthyAfter, check.UnhealthyAfter = 100*time.Millisecond, 100*time.Millisecond, 1, 1
	o.Check = &check
	return o
}

// ask asks once, and returns what is said of it.
func ask(t *testing.T, o *catalog.AppInstance) string {
	t.Helper()
	const enough = time.Minute
	turn, done, err := local().Wait(t.Context(), probe.Subject{App: o.AppRef(), Host: o.Address.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := context.WithTimeoutCause(turn, enough, timedOut(enough))
	defer cancel()
	if err := prepare(o)(ctx); err != nil {
		return err.Error()
	}
	return "ready"
}

func holds(t *testing.T, o *catalog.AppInstance, want string) {
	t.Helper()
	want = strings.ReplaceAll(want, "ADDRESS", o.Address.String())
	if got := ask(t, o); got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

// listen is at a port that nobody else takes when it ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// raw is a server that answers each connection with a text, once it was asked something.
func raw(t *testing.T, text string) string {
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = c.Write([]byte(text))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func TestByTCP(t *testing.T) {
	l := listen(t)
	o := at(l.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckTCP})
	w := watch(t, nil, o)
	w.await(t, "orders/one ready")
	l.Close()
	w.await(t, "orders/one not", "AppInstance shop/one: tcp "+o.Address.String()+": connection refused; not ready since ")
	again, err := net.Listen("tcp", o.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	w.await(t, "orders/one ready")
}

func TestByHTTP(t *testing.T) {
	var hits atomic.Int64
	mux := http.NewServeMux()
	for status := range map[int]bool{200: true, 204: true, 399: true, 400: true, 404: true, 500: true, 503: true} {
		mux.HandleFunc(fmt.Sprintf("/%d", status), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/counted", http.StatusFound) })
	mux.HandleFunc("/counted", func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	mux.HandleFunc("/host", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "vm1.example" || r.URL.RawQuery != "a=b%20c" || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		for range 1 << 20 { // it is not read
			if _, err := w.Write(make([]byte, 1024)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) })
	server := httptest.NewUnstartedServer(mux)
	server.Listener.Close()
	server.Listener = listen(t)
	server.Start()
	defer server.Close()
	for path, want := range map[string]string{
		"/200": "ready", "/204": "ready", "/399": "ready", "/long": "ready", "/elsewhere": "ready", "/host?a=b%20c": "ready",
		"/400":     "http ADDRESS/400: answered 400 Bad Request",
		"/503":     "http ADDRESS/503: answered 503 Service Unavailable",
		"/headers": "http ADDRESS/headers: net/http: server response headers exceeded 65536 bytes; aborted",
	} {
		holds(t, at(server.Listener.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: path, Host: "vm1.example"}), want)
	}
	if hits.Load() > 0 {
		t.Error("a redirect was followed")
	}
	server.Close()
	holds(t, at(server.Listener.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/200"}), "http ADDRESS/200: connection refused")
}

func TestByHTTPS(t *testing.T) {
	var name atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name.Store(hello.ServerName)
		return nil, nil
	}}
	server.StartTLS()
	defer server.Close()
	address := server.Listener.Addr().String()
	holds(t, at(address, catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/", TLS: true, Host: "vm1.example:443"}), "ready")
	if name.Load() != "vm1.example" {
		t.Errorf("the SNI was %q", name.Load())
	}
	holds(t, at(address, catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/"}), "http ADDRESS/: answered 400 Bad Request")
}

func TestServersThatAreNoneOfWhatIsAsked(t *testing.T) {
	for text, want := range map[string]string{
		"":               "http ADDRESS/: the connection was closed before an answer",
		"HTTP/1.1 200":   "http ADDRESS/: the connection was closed before an answer",
		"220 hello\r\n":  `http ADDRESS/: malformed HTTP status code "hello"`,
		"\x16\x03\x01ab": "http ADDRESS/: malformed HTTP response",
	} {
		o := at(raw(t, text), catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/"})
		want = strings.ReplaceAll(want, "ADDRESS", o.Address.String())
		if got := ask(t, o); !strings.HasPrefix(got, want) {
			t.Errorf("of a server that says %q: %s, want %s", text, got, want)
		}
	}
	o := at(raw(t, "hello\r\n"), catalog.HealthCheck{Kind: catalog.CheckGRPC})
	if got := ask(t, o); !strings.HasPrefix(got, "grpc "+o.Address.String()+": ") || got == "ready" {
		t.Errorf("of a server that speaks no gRPC: %s", got)
	}
}

func TestAServerThatIsSilentIsNotReadyAfterTheTimeout(t *testing.T) {
	for _, kind := range []catalog.CheckKind{catalog.CheckHTTP, catalog.CheckGRPC} {
		l := listen(t) // accepts in the kernel, and says nothing
		o := at(l.Addr().String(), catalog.HealthCheck{Kind: kind})
		if kind == catalog.CheckHTTP {
			o.Check.Path = "/"
		}
		watch(t, nil, o).await(t, "orders/one not", "no answer within 100ms")
	}
}

func TestByGRPC(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		var options []grpc.ServerOption
		if encrypted {
			https := httptest.NewTLSServer(nil)
			https.Close()
			options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(&https.TLS.Certificates[0])))
		}
		l, server, state := listen(t), grpc.NewServer(options...), health.NewServer()
		grpc_health_v1.RegisterHealthServer(server, state)
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		state.SetServingStatus("shop.Orders", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		for service, want := range map[string]string{
			"":            "ready",
			"shop.Orders": "grpc ADDRESS: answered NOT_SERVING",
			"shop.Other":  `grpc ADDRESS: it has no service "shop.Other"`,
		} {
			holds(t, at(l.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckGRPC, Service: service, TLS: encrypted}), want)
		}
	}
	l, server := listen(t), grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	o := at(l.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckGRPC})
	holds(t, o, "grpc ADDRESS: it has no health service (grpc.health.v1.Health)")
	server.Stop()
	holds(t, o, "grpc ADDRESS: connection refused")
}

// TestNoConnectionIsLeftOpen counts them at the server.
func TestNoConnectionIsLeftOpen(t *testing.T) {
	var open, all atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "well") }))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			all.Add(1)
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	o := at(server.Listener.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/"})
	for range 200 {
		holds(t, o, "ready")
	}
	deadline := time.Now().Add(time.Minute)
	for open.Load() > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if open.Load() != 0 || all.Load() != 200 {
		t.Errorf("of %d connections %d are open, want 0 of 200", all.Load(), open.Load())
	}
}

// BenchmarkCheck is the cost of one check; the server's share is in it.
func BenchmarkCheck(b *testing.B) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer web.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	for _, o := range []*catalog.AppInstance{
		at(web.Listener.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckTCP}),
		at(web.Listener.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/"}),
		at(l.Addr().String(), catalog.HealthCheck{Kind: catalog.CheckGRPC}),
	} {
		b.Run(o.Check.Kind.String(), func(b *testing.B) {
			ask := prepare(o)
			b.ReportAllocs()
			for b.Loop() {
				if err := ask(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAReasonIsFitForATerminal(t *testing.T) {
	err := probe.Refused("", status.Error(codes.Unavailable, "\x1b[2Jall is well\n\xff"))
	if got := reason(err); got != "Unavailable: ?[2Jall is well?" {
		t.Errorf("got %q", got)
	}
}
