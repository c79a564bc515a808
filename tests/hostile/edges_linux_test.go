package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// TestM3ChecksAreNoWeapon: an app registers as many services with as many checks as it may, all
// of which ask one server that never answers well.
func TestM3ChecksAreNoWeapon(t *testing.T) {
	s := newStage(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	began := time.Now()
	for n := range 60 {
		var checks bytes.Buffer
		for c := range 64 {
			fmt.Fprintf(&checks, `%s{"CheckID": "c%d-%d", "HTTP": "http://%s/", "Interval": "1s"}`, map[bool]string{true: ","}[c > 0], n, c, l.Addr())
		}
		body := fmt.Sprintf(`{"ID": "s%d", "Name": "checkout", "Address": "127.0.0.1", "Port": %d, "Meta": {"DAPR_PORT": "%d"}, "Checks": [%s]}`, n, 9000+n, 9000+n, &checks)
		status, answer := s.put(t, "/v1/agent/service/register", body)
		if n == 0 {
			t.Logf("registered: %d %s", status, answer)
		}
	}
	time.Sleep(4 * time.Second)
	rate := float64(asked.Load()) / time.Since(began).Seconds()
	t.Logf("%.0f connections a second", rate)
	if rate > 300 { // 200 a second, and a burst at first
		t.Errorf("one app had one server asked %.0f times a second, want at most 300", rate)
	}
}

// put sends a request to Consul's API.
func (s *stage) put(t *testing.T, path, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), meshtest.Attempt)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+s.consul+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Consul-Token", consulToken)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestM6InsecureListensOnLoopbackOnly: unless a key says in so many words that it exposes.
func TestM6InsecureListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	needs(t, "isthmus")
	binary := programstest.Path(t, "isthmus")
	for name, c := range map[string]struct {
		identity string
		starts   bool
	}{
		"insecure":             {"{insecure: true}", false},
		"insecure and exposed": {"{insecure: true, insecureExposed: true}", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text := fmt.Sprintf("cluster: west\ndataDir: %s\nstore: {embedded: {path: %s/isthmus.db}}\nlisten: {resolver: \"0.0.0.0:0\"}\nidentity: %s\n", dir, dir, c.identity)
			file := filepath.Join(dir, "isthmus.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			limit := meshtest.Patience // one that refuses ends by itself
			if c.starts {
				limit = 3 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			out, err := exec.CommandContext(ctx, binary, "serve", "-c", file).CombinedOutput()
			if runs := ctx.Err() != nil; runs != c.starts {
				t.Errorf("it runs: %v, want %v (%v)\n%s", runs, c.starts, err, out)
			}
		})
	}
}

// TestM6TheResolverIsNeverServedInPlainTextByTheGateway: also where both settings for
// development are on.
func TestM6TheResolverIsNeverServedInPlainTextByTheGateway(t *testing.T) {
	needs(t, "isthmus")
	box, err := sandbox.New(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := box.Service(meshtest.Within(t, meshtest.Patience), sandbox.ServiceOptions{
		Cluster: "west", Settings: map[string]any{"gateway": map[string]any{"plaintext": true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+s.Gateway, grpc.WithNoProxy(), grpc.WithAuthority(resolverName),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, m := range methods {
		t.Run(m.name, func(t *testing.T) { refused(t, m.call(meshtest.Within(t, meshtest.Attempt), conn, app("orders"))) })
	}
	t.Run("Peering.Renew", func(t *testing.T) { refused(t, renewAs(meshtest.Within(t, meshtest.Attempt), conn, "east")) })
}

// TestLowAnotherHostHeaderIsRefused: a page of another site, whose name leads to loopback, can
// read nothing (DNS rebinding).
func TestLowAnotherHostHeaderIsRefused(t *testing.T) {
	s := newStage(t, nil)
	for _, c := range []struct{ name, address, path string }{
		{"admin", s.Admin, "/metrics"}, {"debug", s.debug, "/debug/views"}, {"consul", s.consul, "/v1/health/service/orders"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for host, want := range map[string]bool{"evil.example": false, "evil.example:80": false, c.address: true, "localhost": true} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.address+c.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = host
				req.Header.Set("X-Consul-Token", consulToken)
				client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if got := res.StatusCode == http.StatusOK; got != want {
					t.Errorf("Host %s: %s", host, res.Status)
				}
			}
		})
	}
}

// TestM4DebugPagesAreApartFromHealth: the admin server may be reached by others, such as
// Prometheus; profiles and views may not.
func TestM4DebugPagesAreApartFromHealth(t *testing.T) {
	s := newStage(t, nil)
	for _, path := range []string{"/debug/views", "/debug/store", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap"} {
		if err := get(t.Context(), "http://"+s.Admin+path, nil); err == nil {
			t.Errorf("the admin server has %s", path)
		}
		if err := get(t.Context(), "http://"+s.debug+path, nil); err != nil {
			t.Errorf("the debug server: %v", err)
		}
	}
}
