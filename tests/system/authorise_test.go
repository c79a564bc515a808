package system

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/page"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// TestAnAppAuthorisesCallers runs the programs of docs/how-to/authorise-callers.md in west, and calls
// them and others from both clusters.
func TestAnAppAuthorisesCallers(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	app := func(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }
	callees := []string{"app: orders", "app: quotes", "app: in-go", "app: in-js", "app: in-python"}
	m.apply(t, m.west, selection("shop", "checkout", callees...), selection("shop", "mallory", callees...))
	m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("orders"), Caller: true, Component: asks})
	m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("quotes"), GRPC: true, Component: asks})
	for _, language := range []string{"go", "js", "python"} {
		m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("in-" + language), AppAddress: refunds(t, language), Caller: true, Component: asks})
	}
	checkout, mallory := m.app(t, m.west, "shop", "checkout"), m.app(t, m.west, "shop", "mallory")
	forged := http.Header{"Isthmus-Caller": {described(app("checkout"), "west", sandbox.AppTrustDomain)}, "isthmus_caller": {`app="admin"`}}
	for _, callee := range []string{"in-go", "in-js", "in-python"} {
		refunded := func(by *sandbox.Sidecar, want string) {
			t.Helper()
			meshtest.Eventually(t, meshtest.Patience, func() error {
				got, err := get(meshtest.Within(t, meshtest.Attempt), by.InvokeURL(callee, "refund"), forged)
				if status, text, _ := strings.Cut(want, " "); err == nil && (!strings.HasPrefix(got, status) || !strings.Contains(got, text)) {
					err = fmt.Errorf("%s gets %q of %s; want %q", by.Name(), got, callee, want)
				}
				return err
			})
		}
		refunded(checkout, "200 refunded for checkout")
		refunded(mallory, "403 checkout in west alone may refund")
	}

	hear := func(by *sandbox.Sidecar, want string) {
		t.Helper()
		proxy := dial(t, by)
		meshtest.Eventually(t, meshtest.Patience, func() error {
			ctx := meshtest.Within(t, meshtest.Attempt)
			overHTTP, err := by.Invoke(ctx, "orders", "hello", forged)
			if err != nil {
				return err
			}
			overGRPC, err := sandbox.Proxy(ctx, proxy, "quotes", map[string]string{"isthmus-caller": forged.Get("Isthmus-Caller")})
			if err != nil {
				return err
			}
			if a, b := overHTTP.Header["Isthmus-Caller"], overGRPC.Header["isthmus-caller"]; a != want || b != want {
				return fmt.Errorf("an HTTP app hears %s, one of gRPC %s; want %s", a, b, want)
			}
			return nil
		})
	}
	known := described(app("checkout"), "west", sandbox.AppTrustDomain)
	unknown := strings.Replace(known, ` cluster="west",`, "", 1)
	hear(checkout, known)
	// Apps of east have the same trust domain, so nobody knows any more which checkout calls.
	m.apply(t, m.west, export("shop", "orders", "east"), export("shop", "quotes", "east"))
	m.apply(t, m.east, selection("shop", "checkout", "app: orders", "app: quotes"))
	hear(m.app(t, m.east, "shop", "checkout"), unknown)
	hear(checkout, unknown)
	// With a trust domain of its own, each is known.
	m.apply(t, m.west, meshtest.Cluster("east", m.east.Gateway)+"  trust: {appDomain: east.example}\n")
	hear(checkout, known)
	want := described(app("checkout"), "east", "east.example")
	for callee, header := range map[string]string{"orders": "Isthmus-Caller", "quotes": "isthmus-caller"} {
		theirs := m.outsiderIn(t, "east.example", app("checkout"), app(callee), "passthrough:///"+m.west.Gateway, grpc.WithAuthority(callee+".shop.west.isthmus.internal"))
		meshtest.Eventually(t, meshtest.Patience, func() error {
			reply := new(sandbox.Reply)
			_, body, err := theirs.http(meshtest.Within(t, meshtest.Attempt), "hello", "Isthmus-Caller", known)
			if err == nil {
				err = json.Unmarshal([]byte(body), reply)
			}
			if err == nil && reply.Header[header] != want {
				err = fmt.Errorf("by west's gateway %s hears %s; want %s", callee, reply.Header[header], want)
			}
			return err
		})
	}
}

// get is the status and the body of an answer.
func get(ctx context.Context, url string, header http.Header) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Header = header.Clone()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return fmt.Sprint(res.StatusCode, " ", string(body)), err
}

// refunds starts a program of the page, and returns where it listens.
func refunds(t *testing.T, language string) (at string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/authorise-callers.md")
	if err != nil {
		t.Fatal(err)
	}
	var program string
	for _, s := range page.Snippets(string(text)) {
		if s.Language == language {
			program = s.Text
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, map[string]string{"go": "main.go", "js": "main.cjs", "python": "main.py"}[language])
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	command := sandbox.Command{Name: "refunds-in-" + language, LogDir: dir, Args: []string{file}}
	switch language {
	case "go":
		command.Path, command.Args = filepath.Join(dir, "refunds"), nil
		if out, err := exec.Command("go", "build", "-o", command.Path, file).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	case "js":
		command.Path, err = sandbox.Binary("node")
	case "python":
		command.Path, err = sandbox.Binary("python3")
	}
	if err != nil {
		t.Fatal(err)
	}
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	command.Env = []string{"APP_PORT=" + strconv.Itoa(port)}
	p, err := sandbox.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", command.Name, p.Tail(25))
		}
	})
	at = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	meshtest.Eventually(t, meshtest.Patience, func() error {
		got, err := get(meshtest.Within(t, meshtest.Attempt), "http://"+at+"/refund", nil)
		if err == nil && !strings.HasPrefix(got, "403") {
			err = fmt.Errorf("without a header it answers %s, want 403", got)
		}
		return err
	})
	return at
}

// subscriber is an app that keeps the headers of the messages it gets.
type subscriber struct {
	mu       sync.Mutex
	messages []http.Header
}

func (s *subscriber) got(header map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, header)
}

// start has the app listen, and returns where.
func (s *subscriber) start(t *testing.T, overGRPC bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/news" {
			s.got(r.Header)
		}
	})}
	serve, stop := server.Serve, func() { server.Close() }
	if overGRPC {
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			if method, _ := grpc.MethodFromServerStream(stream); strings.HasSuffix(method, "/OnTopicEvent") {
				md, _ := metadata.FromIncomingContext(stream.Context())
				s.got(md)
			}
			return stream.SendMsg(&emptypb.Empty{})
		}))
		serve, stop = server.Serve, server.Stop
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = serve(listener) }() // it is closed below
	t.Cleanup(func() { stop(); <-done })
	return listener.Addr().String()
}

const news = `apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: bus}
spec: {type: pubsub.in-memory, version: v1, metadata: []}
---
apiVersion: dapr.io/v2alpha1
kind: Subscription
metadata: {name: news}
spec: {pubsubname: bus, topic: news, routes: {default: /news}}
`

// TestNoMessageSaysWhoCalls publishes messages with metadata of which daprd makes headers.
func TestNoMessageSaysWhoCalls(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "news.yaml"), []byte(news), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, overGRPC := range []bool{false, true} {
		app := new(subscriber)
		s := m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "news", ID: fmt.Sprint("subscriber-", overGRPC)},
			AppAddress: app.start(t, overGRPC), GRPC: overGRPC, Caller: !overGRPC, Component: asks, Args: []string{"--resources-path", dir}})
		query := url.Values{"metadata.x-mine": {"7"}}
		for _, name := range forgeries() {
			query.Set("metadata."+name, "admin")
		}
		meshtest.Eventually(t, meshtest.Patience, func() error {
			res, err := http.Post("http://"+s.HTTP+"/v1.0/publish/bus/news?"+query.Encode(), "application/json", strings.NewReader(`{}`))
			if err != nil {
				return err
			}
			defer http.DefaultClient.CloseIdleConnections()
			defer res.Body.Close()
			app.mu.Lock()
			defer app.mu.Unlock()
			if len(app.messages) == 0 {
				return fmt.Errorf("no message has come; publishing: %s", res.Status)
			}
			return nil
		})
		app.mu.Lock()
		for _, header := range app.messages {
			mine := false
			for name := range header {
				mine = mine || strings.EqualFold(name, "x-mine")
				if saysWhoCalls.MatchString(name) {
					t.Errorf("over gRPC %t: a message says %s: %s", overGRPC, name, header[name])
				}
			}
			if !mine {
				text, _ := json.Marshal(header)
				t.Errorf("over gRPC %t: the metadata of a message are no headers, so this test proves nothing: %s", overGRPC, text)
			}
		}
		app.mu.Unlock()
	}
}
