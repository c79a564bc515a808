package laptop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
)

const loopback = "127.0.0.1:0"

// FindDaprd finds the daprd with Isthmus: the one that is named, or beside this program, or on the PATH.
func FindDaprd(named string) (string, error) {
	path, err := findDaprd(named)
	if err != nil {
		return "", err
	}
	// A program in Go names its modules. Package debug/buildinfo would find them with readers of six
	// formats, 0.3 MB of this program. What is not in Go may be a script that starts one.
	program, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if bytes.Contains(program, []byte("\xff Go buildinf:")) && !bytes.Contains(program, []byte("\tgithub.com/isthmus-mesh/isthmus")) {
		return "", fmt.Errorf("%s is a program without Isthmus, such as Dapr's own daprd; take the daprd of the same release as isthmus, and name it by --daprd; the invitation is not used yet", path)
	}
	return path, nil
}

func findDaprd(named string) (string, error) {
	const program = "daprd"
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("--daprd %s: %w; name the daprd with Isthmus in it", named, err)
		}
		return path, nil
	}
	beside := program
	if self, err := os.Executable(); err == nil {
		beside = filepath.Join(filepath.Dir(self), program)
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("the sidecar is a program of its own, and neither %s is there nor daprd on the PATH; take the daprd with Isthmus of the same release, or run make daprd in a clone, and name it by --daprd", beside)
	}
	return path, nil
}

// sidecar is the daprd of the laptop's app.
type sidecar struct {
	http, grpc int // its ports for the app
	cmd        *exec.Cmd
	ended      chan struct{}
	err        error // how it ended; read after ended
	watcher    *exec.Cmd
	leash      io.Closer
}

// freePort is the one that is wanted, if it is free, or another.
func freePort(wanted int) (int, error) {
	for _, port := range []int{wanted, 0} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			defer l.Close()
			return l.Addr().(*net.TCPAddr).Port, nil
		}
	}
	return 0, errors.New("no port is free on 127.0.0.1")
}

// guarded has the calls to the app pass the guard.
const guarded = `apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: guard}
spec: {type: middleware.http.isthmus, version: v1, metadata: []}
`

// configure writes what daprd reads, and returns its arguments.
func (g *guest) configure(s *sidecar) (args []string, err error) {
	resources := filepath.Join(g.dir, "resources")
	if err := os.Mkdir(resources, 0o700); err != nil {
		return nil, err
	}
	configuration, err := yaml.Marshal(map[string]any{
		"apiVersion": "dapr.io/v1alpha1", "kind": "Configuration", "metadata": map[string]any{"name": "isthmus"},
		"spec": map[string]any{
			"nameResolution": map[string]any{"component": "isthmus", "version": "v1", "configuration": map[string]any{
				"resolver": g.resolver, "cluster": g.name, "identity": map[string]any{"sentry": map[string]any{"address": g.relay.address}},
			}},
			"appHttpPipeline": map[string]any{"handlers": []any{map[string]any{"name": "guard", "type": "middleware.http.isthmus"}}},
		},
	})
	if err != nil {
		return nil, err
	}
	config := filepath.Join(g.dir, "daprd.yaml")
	if err := errors.Join(os.WriteFile(filepath.Join(resources, "guard.yaml"), []byte(guarded), 0o600), os.WriteFile(config, configuration, 0o600)); err != nil {
		return nil, err
	}
	var internal int
	for port, wanted := range map[*int]int{&s.http: g.HTTPPort, &s.grpc: g.GRPCPort, &internal: 0} {
		if *port, err = freePort(wanted); err != nil {
			return nil, err
		}
	}
	args = []string{
		"--app-id", g.app.ID, "--app-channel-address", "127.0.0.1", "--app-port", strconv.Itoa(g.Port), "--app-protocol", g.Protocol,
		"--dapr-listen-addresses", "127.0.0.1", "--dapr-http-port", strconv.Itoa(s.http), "--dapr-grpc-port", strconv.Itoa(s.grpc),
		"--dapr-internal-grpc-listen-address", "127.0.0.1", "--dapr-internal-grpc-port", strconv.Itoa(internal), "--enable-metrics=false",
		"--enable-mtls", "--sentry-address", g.relay.address, "--control-plane-trust-domain", controlDomain, "--config", config, "--resources-path", resources,
	}
	for _, more := range g.Resources {
		args = append(args, "--resources-path", more)
	}
	return args, nil
}

// startSidecar starts daprd, and waits until it is ready.
func (g *guest) startSidecar(ctx context.Context) (*sidecar, error) {
	s := &sidecar{ended: make(chan struct{})}
	args, err := g.configure(s)
	if err != nil {
		return nil, fmt.Errorf("configure the sidecar: %w", err)
	}
	s.cmd = exec.Command(g.daprd, args...)
	s.cmd.Env = append(os.Environ(), "NAMESPACE="+g.app.Namespace, "DAPR_HOST_IP=127.0.0.1", "DAPR_TRUST_ANCHORS="+g.roots+string(g.relay.root),
		"DAPR_SENTRY_TOKEN_FILE="+g.relay.token, "DAPR_CONTROLPLANE_TRUST_DOMAIN="+controlDomain, "DAPR_CONTROLPLANE_NAMESPACE="+controlNamespace)
	s.cmd.Stdout, s.cmd.Stderr = g.log, g.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program, which ends the sidecar
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", g.daprd, err)
	}
	go func() {
		defer close(s.ended)
		s.err = s.cmd.Wait()
	}()
	if err := errors.Join(s.watch(g.dir), s.await(ctx)); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// watch has the sidecar ended, and the guest's files removed, when this program is killed.
func (s *sidecar) watch(dir string) (err error) {
	s.watcher = exec.Command("sh", "-c", `cat >/dev/null; kill -9 "$1" 2>/dev/null; rm -rf "$2"`, "sh", strconv.Itoa(s.cmd.Process.Pid), dir)
	s.watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.leash, err = s.watcher.StdinPipe(); err == nil {
		err = s.watcher.Start()
	}
	return err
}

// How long the sidecar may take.
const (
	startWithin = time.Minute
	stopWithin  = 8 * time.Second
)

func (s *sidecar) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	url := "http://127.0.0.1:" + strconv.Itoa(s.http) + "/v1.0/healthz"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if res.StatusCode/100 == 2 {
				return nil
			}
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the sidecar ended before it was ready: %v", s.err)
		case <-ctx.Done():
			return fmt.Errorf("the sidecar is not ready at %s: %w", url, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop ends the sidecar, and then what watches it.
func (s *sidecar) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopWithin):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	if s.watcher != nil && s.watcher.Process != nil {
		_ = s.watcher.Process.Kill()
		_ = s.watcher.Wait()
		s.leash.Close()
	}
}

// tail is the end of the log.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
