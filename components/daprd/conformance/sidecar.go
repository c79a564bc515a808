package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
)

// sidecarVariable has a sidecarOrder for a process that acts as a sidecar.
const sidecarVariable = "NAME_RESOLUTION_CONFORMANCE_SIDECAR"

// registered is what such a process prints once its resolver has started.
const registered = "conformance: registered"

type sidecarOrder struct {
	Instance      nr.Instance
	Configuration any
}

// sidecar is a process whose resolver has registered an instance.
type sidecar struct {
	leave func() // in order: the resolver is closed
	kill  func() // without a word
}

// sidecar starts one, which leaves with the test at the latest.
func (w *world) sidecar(t *testing.T, i nr.Instance) *sidecar {
	t.Helper()
	order, err := json.Marshal(sidecarOrder{i, w.configuration})
	if err != nil {
		t.Fatal(err)
	}
	// The test that calls Run; the name of the check is below that.
	test := strings.Split(t.Name(), "/")
	pattern := "^" + strings.Join(test[:len(test)-2], "$/^") + "$"
	cmd := exec.Command(os.Args[0], "-test.run="+pattern, "-test.count=1", "-test.timeout=0") //nolint:gosec
	cmd.Env = append(os.Environ(), sidecarVariable+"="+string(order))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end := func(how func() error) func() {
		return func() {
			once.Do(func() {
				_ = how()
				_, _ = io.Copy(io.Discard, out)
				_ = cmd.Wait()
			})
		}
	}
	s := &sidecar{leave: end(in.Close), kill: end(cmd.Process.Kill)}
	t.Cleanup(s.leave)

	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), registered) {
			return s
		}
		fmt.Fprintln(&said, lines.Text())
	}
	s.kill()
	t.Fatalf("a sidecar of %s did not register:\n%s", i.AppID, said.String())
	return nil
}

// actsAsSidecar does the part of a sidecar, in a process that sidecar has started.
func actsAsSidecar(t *testing.T, newResolver func() nr.Resolver, setup Setup) bool {
	text, ok := os.LookupEnv(sidecarVariable)
	if !ok {
		return false
	}
	var order sidecarOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		t.Fatal(err)
	}
	order.Instance.DaprHTTPPort = serveHealth(t, order.Instance.Address)
	if setup.Serve != nil {
		setup.Serve(t, order.Instance)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := newResolver()
	if err := r.Init(ctx, nr.Metadata{Instance: order.Instance, Configuration: order.Configuration}); err != nil {
		t.Fatalf("Init: %v", err)
	}
	fmt.Println(registered)
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the sidecar is to leave, or its test has ended
	cancel()
	if err := r.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	return true
}

// serveHealth answers as the health endpoint of daprd's HTTP API does, and returns its port. An
// address that is not of this machine has none, and gets a port all the same.
func serveHealth(t *testing.T, ip string) int {
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return 3500
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return listener.Addr().(*net.TCPAddr).Port
}
