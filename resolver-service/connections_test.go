package resolverservice

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
)

// limited is a service in a process of its own that may have few descriptors.
func limited(t *testing.T, ca *identitytest.CA, descriptors int) (p *replicaProcess) {
	t.Helper()
	dir := t.TempDir()
	p = &replicaProcess{t: t, name: "limited", config: filepath.Join(dir, "isthmus.yaml"), resolver: freeAddress(t), gateway: freeAddress(t), admin: freeAddress(t), debug: freeAddress(t)}
	f := ca.Config(identity.ServiceApp("", "west")).Files
	text := fmt.Sprintf("cluster: west\ndataDir: %s/data\nidentity: {files: {cert: %s, key: %s, ca: %s}}\nlisten: {resolver: '%s', gateway: '%s', admin: '%s', debug: '%s'}\n",
		dir, f.Cert, f.Key, f.CA, p.resolver, p.gateway, p.admin, p.debug)
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.log.Close() })
	p.cmd = exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d && exec %s", descriptors, os.Args[0]))
	p.cmd.Env = append(os.Environ(), replicaVariable+"="+p.config)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if code, body := p.get("/readyz"); code == http.StatusOK {
			return p
		} else if time.Now().After(end) {
			text, _ := os.ReadFile(p.log.Name())
			t.Fatalf("not ready: %s\n%s", body, text)
		}
	}
}

// connectTo connects as an app by its certificate.
func connectTo(t *testing.T, ca *identitytest.CA, app catalog.App, to string) *grpc.ClientConn {
	t.Helper()
	source, err := identity.New(ca.Config(app), app, slog.New(slog.DiscardHandler))
	if err == nil {
		err = source.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(source.ClientCredentials(identity.Anyone)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// flood opens connections and sends a text on each, and nothing more.
func flood(t *testing.T, to string, connections int, text string) {
	t.Helper()
	for range connections {
		c, err := net.DialTimeout("tcp", to, patience)
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		t.Cleanup(func() { c.Close() })
		if text != "" {
			_, _ = c.Write([]byte(text)) // it may be closed by now
		}
	}
}

// TestConnectionsThatAreSilentKeepNobodyOut has more of them on each listener than the process
// may have descriptors.
func TestConnectionsThatAreSilentKeepNobodyOut(t *testing.T) {
	const descriptors = 1024
	ca := identitytest.NewCA(t)
	p := limited(t, ca, descriptors)
	held := connectTo(t, ca, orders, p.resolver)
	stream, err := v1alpha1.NewResolverClient(held).Watch(t.Context())
	if err == nil {
		err = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: &v1alpha1.Hello{App: wireApp(orders)}}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	flood(t, p.gateway, 1100, "")
	flood(t, p.admin, 200, "")
	for _, text := range []string{"", "\x16\x03\x01"} { // silent, and in the middle of a handshake
		flood(t, p.resolver, 4000, text)
		if code, body := p.get("/livez"); code != http.StatusOK {
			t.Errorf("health, beside silent connections: %d %s", code, body)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := v1alpha1.NewResolverClient(connectTo(t, ca, checkout, p.resolver)).Resolve(ctx,
			&v1alpha1.ResolveRequest{Caller: wireApp(checkout), App: wireApp(orders)}, grpc.WaitForReady(true))
		cancel()
		if err != nil {
			t.Errorf("a good client, beside connections that sent %q: %v", text, err)
		}
	}
	if err := stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Drain{}}); err != nil {
		t.Errorf("the stream of before is gone: %v", err)
	}
	_, metrics := p.get("/metrics")
	for _, want := range []string{`isthmus_connections_refused_total{listener="resolver",reason="gave_way"}`, `isthmus_connections_open{listener="resolver"}`} {
		if !strings.Contains(metrics, want) || strings.Contains(metrics, want+" 0\n") {
			t.Errorf("metrics have no %s", want)
		}
	}
	if text, _ := os.ReadFile(p.log.Name()); !strings.Contains(string(text), "the limit of open files is too low") || strings.Contains(string(text), "too many open files") {
		t.Errorf("the log says:\n%s", text)
	}
}

// TestAHandshakeHasFiveSeconds from the connection to the client's HTTP/2 settings, also for a
// client that sends something now and then.
func TestAHandshakeHasFiveSeconds(t *testing.T) {
	west := start(t, configOf(t, "west", identitytest.NewCA(t)), nil)
	plain := start(t, configOf(t, "east", nil), nil)
	for name, c := range map[string]struct{ to, text string }{
		"silent":              {west.Addr("resolver").String(), ""},
		"trickling":           {west.Addr("resolver").String(), "\x16\x03\x01\x01\x00" + strings.Repeat("\x01", 100)},
		"silent in plain":     {plain.Addr("resolver").String(), ""},
		"without settings":    {plain.Addr("resolver").String(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		"with half a preface": {plain.Addr("resolver").String(), "PRI * HTTP/2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", c.to)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				for buf := make([]byte, 1024); ; {
					if _, err := conn.Read(buf); err != nil {
						return
					}
				}
			}()
			every := time.NewTicker(100 * time.Millisecond)
			defer every.Stop()
			for late := time.After(60 * time.Second); ; {
				select {
				case <-closed:
					return
				case <-late:
					t.Fatal("it is open after a minute")
				case <-every.C:
					if len(c.text) > 0 {
						_, _ = conn.Write([]byte(c.text[:1]))
						c.text = c.text[1:]
					}
				}
			}
		})
	}
}

// TestOnlyOperatorsMaySendMuch holds each kind of caller to its bound.
func TestOnlyOperatorsMaySendMuch(t *testing.T) {
	ca := identitytest.NewCA(t)
	west := start(t, configOf(t, "west", ca), ca)
	object := `{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppEndpoints","metadata":{"name":"checkout","namespace":"shop"},"spec":{}}` + strings.Repeat(" ", 3<<20)
	large := &v1alpha1.ApplyRequest{DryRun: true, Objects: []*v1alpha1.ApplyObject{{Json: []byte(object)}}}
	_, err := v1alpha1.NewObjectsClient(west.connect(identity.CLIApp(""))).Apply(t.Context(), large)
	if code := status.Code(err); code == codes.ResourceExhausted || code == codes.PermissionDenied || code == codes.Unavailable {
		t.Errorf("an operator: %v", err)
	}
	_, err = v1alpha1.NewObjectsClient(west.connect(checkout)).Apply(t.Context(), large)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a sidecar: %v", err)
	}
	_, err = v1alpha1.NewObjectsClient(west.connect(checkout)).Apply(t.Context(), &v1alpha1.ApplyRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a sidecar that sends little: %v", err)
	}
}

// TestCallsThatNeverEndAreFew has an app's sidecars begin calls and send no request.
func TestCallsThatNeverEndAreFew(t *testing.T) {
	ca := identitytest.NewCA(t)
	west := start(t, configOf(t, "west", ca), ca)
	conn := west.connect(checkout)
	refused := 0
	for range 2 * stream.MaxCalls {
		call, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, v1alpha1.Resolver_Resolve_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if refused++; refused > stream.MaxCalls {
			if err := call.RecvMsg(&v1alpha1.Decision{}); status.Code(err) != codes.ResourceExhausted {
				t.Fatalf("call %d: %v", refused, err)
			}
		}
	}
	if got := west.resolve(orders, checkout); strings.Contains(got, "too many") {
		t.Errorf("another app: %s", got)
	}
}

// TestRefusalsAreLoggedNowAndThen has a sidecar call what is for operators.
func TestRefusalsAreLoggedNowAndThen(t *testing.T) {
	ca := identitytest.NewCA(t)
	var log logged.Buffer
	west := launchWith(t, configOf(t, "west", ca), ca, slog.New(slog.NewTextHandler(&log, nil)))
	west.within("ready", func() bool { code, _ := west.get("/readyz"); return code == http.StatusOK })
	client := v1alpha1.NewStatusClient(west.connect(checkout))
	for range 1000 {
		if _, err := client.Status(t.Context(), &v1alpha1.StatusRequest{}); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "refused a call"); n < 1 || n > 20 {
		t.Errorf("%d lines for 1,000 refusals", n)
	}
}
