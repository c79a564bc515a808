package install

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

const (
	service = "ghcr.io/isthmus-mesh/isthmus:0.0.1"
	sidecar = "ghcr.io/isthmus-mesh/daprd-isthmus:0.0.1"
)

func binary(t *testing.T, name string) string {
	t.Helper()
	path := programstest.Path(t, name)
	return path
}

// pack makes the images of the binaries that tests run, and returns what it says: their digests.
func pack(t *testing.T, dir string) string {
	t.Helper()
	on, release := "linux/"+runtime.GOARCH+":", filepath.Join(t.TempDir(), "release")
	run := func(ctx context.Context, name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = "../../tools"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return string(out)
	}
	run(t.Context(), "go", "build", "-o", release, "./release") // minutes, without its cache
	out := run(meshtest.Within(t, meshtest.Patience), release, "-root", "..", "-out", dir, "-version", "v0.0.1", "-time", "1760000000",
		"isthmus="+on+binary(t, "isthmus"), "daprd-isthmus="+on+binary(t, "daprd"))
	return strings.ReplaceAll(out, dir, "")
}

func TestImagesOfOneBuildHaveOneDigest(t *testing.T) {
	first, second := pack(t, t.TempDir()), pack(t, t.TempDir())
	if first != second || strings.Count(first, "@sha256:") != 2 {
		t.Errorf("%s\n%s", first, second)
	}
}

// containers is a containerd of the test's own.
type containers struct {
	t      *testing.T
	socket string
	env    []string
}

func start(t *testing.T) *containers {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	dir := t.TempDir()
	c := &containers{t: t, socket: filepath.Join(dir, "containerd.sock")}
	var path []string
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		path = append(path, filepath.Dir(binary(t, name)))
	}
	c.env = append(os.Environ(), "PATH="+strings.Join(append(path, os.Getenv("PATH")), ":"))
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n[grpc]\n  address = %q\n", dir+"/lib", dir+"/state", c.socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "containerd.log"))
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(binary(t, "containerd"), "-c", config)
	server.Env, server.Stdout, server.Stderr = c.env, log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("containerd:\n%s", text)
		}
	})
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := c.ctr("version")
		return err
	})
	return c
}

// ctr runs containerd's own client.
func (c *containers) ctr(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), meshtest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(c.t, "ctr"), append([]string{"--address", c.socket}, args...)...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// rights are those of a container in a namespace that enforces Kubernetes' restricted profile.
var rights = append([]string{"--snapshotter", "native", "--read-only", "--seccomp", "--net-host"}, dropped()...)

// dropped has every capability of a runtime's default taken away.
func dropped() (args []string) {
	for _, c := range strings.Fields("CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE") {
		args = append(args, "--cap-drop", "CAP_"+c)
	}
	return args
}

// run starts a container, with more for ctr before the image and its arguments, and ends it with the test.
func (c *containers) run(name, image string, more []string, args ...string) {
	c.t.Helper()
	all := append([]string{"run", "--detach", "--log-uri", "file://" + filepath.Join(c.t.TempDir(), name+".log")}, rights...)
	all = append(append(append(all, more...), image, name), args...)
	if _, err := c.ctr(all...); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_, err := c.ctr("task", "kill", "--signal", "SIGKILL", name)
		for end := time.Now().Add(meshtest.Attempt); err == nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if _, err := c.ctr("task", "delete", name); err == nil {
				break
			}
		}
		_, _ = c.ctr("container", "delete", name)
	})
}

// hasNoRights checks who runs in a container, as the kernel sees it.
func (c *containers) hasNoRights(name string) {
	c.t.Helper()
	out, err := c.ctr("task", "ls")
	if err != nil {
		c.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + `\s+(\d+)\s+RUNNING`).FindStringSubmatch(out)
	if found == nil {
		c.t.Fatalf("%s does not run:\n%s", name, out)
	}
	text, err := os.ReadFile("/proc/" + found[1] + "/status")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !bytes.Contains(text, []byte(want)) {
			c.t.Errorf("%s: no %q in\n%s", name, want, text)
		}
	}
}

func answers(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func ready(t *testing.T, url string, want int) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if code, text := answers(t, http.MethodGet, url, ""); code != want {
			return fmt.Errorf("%s: %d %s", url, code, text)
		}
		return nil
	})
}

func ports(t *testing.T, n int) (all []int) {
	t.Helper()
	for range n {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, port)
	}
	return all
}

func bind(src, dst string) []string {
	return []string{"--mount", "type=bind,src=" + src + ",dst=" + dst + ",options=rbind:ro"}
}

func TestImagesRunWithoutRights(t *testing.T) {
	c := start(t)
	dir := t.TempDir()
	pack(t, dir)
	for _, name := range []string{"isthmus", "daprd-isthmus"} {
		if _, err := c.ctr("images", "import", "--snapshotter", "native", filepath.Join(dir, "images", name+".tar")); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("the command line", func(t *testing.T) {
		out, err := c.ctr(append(append([]string{"run", "--rm"}, rights...), service, "version", "isthmus", "version", "--client")...)
		if err != nil || !strings.HasPrefix(out, "isthmus ") || !strings.Contains(out, "linux/"+runtime.GOARCH) {
			t.Errorf("%q, %v", out, err)
		}
	})

	t.Run("the service", func(t *testing.T) {
		c := &containers{t, c.socket, c.env}
		p := ports(t, 3)
		config := filepath.Join(t.TempDir(), "isthmus.yaml")
		text := fmt.Sprintf("cluster: west\nidentity: {insecure: true}\ndataDir: /var/lib/isthmus\nlisten: {resolver: '127.0.0.1:%d', gateway: '127.0.0.1:%d', admin: '127.0.0.1:%d'}\n", p[0], p[1], p[2])
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		more := append(bind(config, "/etc/isthmus.yaml"), "--mount", "type=tmpfs,src=tmpfs,dst=/var/lib/isthmus,options=uid=65532:gid=65532:mode=0700")
		c.run("service", service, more, "/isthmus", "serve", "-c", "/etc/isthmus.yaml")
		ready(t, fmt.Sprintf("http://127.0.0.1:%d/readyz", p[2]), http.StatusOK)
		c.hasNoRights("service")
	})

	// Dapr's injector gives the container arguments that begin with "/daprd", and no command.
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "well met") }))
	defer server.Close()
	root := filepath.Join(t.TempDir(), "own.crt")
	if err := os.WriteFile(root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string][]string{
		"trusting": bind(root, "/etc/ssl/certs/own.crt"), "doubting": nil,
		"trusting-too": append(bind(root, "/my-roots/own.crt"), "--env", "SSL_CERT_DIR=/my-roots"), // as docs/how-to/release.md says
	} {
		t.Run("a sidecar "+name+" a root that was added", func(t *testing.T) {
			c := &containers{t, c.socket, c.env}
			p := ports(t, 4)
			c.run(name, sidecar, more, "/daprd", "--app-id", name, "--dapr-http-port", fmt.Sprint(p[0]), "--dapr-grpc-port", fmt.Sprint(p[1]),
				"--dapr-internal-grpc-port", fmt.Sprint(p[2]), "--metrics-port", fmt.Sprint(p[3]), "--dapr-listen-addresses", "127.0.0.1", "--enable-mtls=false")
			at := fmt.Sprintf("http://127.0.0.1:%d/v1.0/", p[0])
			ready(t, at+"healthz", http.StatusNoContent)
			c.hasNoRights(name)
			code, text := answers(t, http.MethodPost, at+"invoke/"+server.URL+"/method/hello", "")
			if trusts := name != "doubting"; trusts && (code != http.StatusOK || text != "well met") || !trusts && (code == http.StatusOK || !strings.Contains(text, "certificate")) {
				t.Errorf("an HTTPS server answers %d %s", code, text)
			}
		})
	}
}
