package serverstest

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// Kubernetes is an API server with its etcd, that tests share. It has no controllers.
type Kubernetes struct {
	Users []string // beside the administrator, with tokens as TokenOf says

	Dir  string
	Etcd *servers.Etcd
	Keys *clientv3.Client // of Etcd
	API  *servers.Kubernetes
	Link Link // to API, for what is under test

	once sync.Once
	err  error
}

// kubernetesAdmin is the user who may do everything.
const kubernetesAdmin = "admin"

// TokenOf is the token of a user of Kubernetes.
func TokenOf(user string) string { return "token-of-" + user }

// Tokens are those of all users.
func (k *Kubernetes) Tokens() []string {
	all := []string{TokenOf(kubernetesAdmin)}
	for _, user := range k.Users {
		all = append(all, TokenOf(user))
	}
	return all
}

// Need starts the servers and prepares them, the first time.
func (k *Kubernetes) Need(t testing.TB, prepare func() error) {
	t.Helper()
	k.once.Do(func() {
		if k.err = k.start(); k.err == nil {
			k.err = prepare()
		}
	})
	programstest.OrSkip(t, k.err)
}

func (k *Kubernetes) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if k.Dir, err = os.MkdirTemp("", "isthmus-kubernetes-"); err != nil {
		return err
	}
	// What a kill of a process loses is not what fsync is for, and the tests write a lot.
	if k.Etcd, err = servers.StartEtcd(ctx, k.Dir, servers.EtcdOptions{Args: []string{"--unsafe-no-fsync"}}); err != nil {
		return err
	}
	if k.Keys, err = clientv3.New(clientv3.Config{Endpoints: []string{k.Etcd.URL()}, Logger: zap.NewNop()}); err != nil {
		return err
	}
	o := servers.KubernetesOptions{Etcd: k.Etcd.URL(), Args: []string{"--request-timeout=15s"}} // which is how long a stop takes
	o.Users = append(o.Users, servers.KubernetesUser{Name: kubernetesAdmin, Token: TokenOf(kubernetesAdmin), Groups: []string{"system:masters"}})
	for _, user := range k.Users {
		o.Users = append(o.Users, servers.KubernetesUser{Name: user, Token: TokenOf(user)})
	}
	if k.API, err = servers.StartKubernetes(ctx, k.Dir, o); err != nil {
		return err
	}
	if k.Link.Proxy, err = servers.NewProxy(k.API.Addr()); err != nil {
		return err
	}
	return servers.Kubeconfig(k.AdminConfig(), k.API.Addr(), k.API.CA(), TokenOf(kubernetesAdmin))
}

// End ends the servers if they were started.
func (k *Kubernetes) End() {
	if k.Keys != nil {
		_ = k.Keys.Close()
	}
	if k.Link.Proxy != nil {
		k.Link.Close()
	}
	if k.API != nil {
		_ = k.API.Kill()
	}
	if k.Etcd != nil {
		_ = k.Etcd.Kill()
	}
	_ = os.RemoveAll(k.Dir)
}

// AdminConfig is the file of the administrator's kubeconfig, which goes by no link.
func (k *Kubernetes) AdminConfig() string { return filepath.Join(k.Dir, "admin.kubeconfig") }

// Kubeconfig is the file of a user, by the link. One who is not among Users has a token that
// the server does not know.
func (k *Kubernetes) Kubeconfig(t testing.TB, user string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := servers.Kubeconfig(path, k.Link.Addr(), k.API.CA(), TokenOf(user)); err != nil {
		t.Fatal(err)
	}
	return path
}

// Run runs kubectl as the administrator, with input if there is any. The error has the
// output, too.
func (k *Kubernetes) Run(input string, args ...string) (string, error) {
	binary, err := sandbox.Binary("kubectl")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(binary, append([]string{"--kubeconfig=" + k.AdminConfig(), "--cache-dir=" + filepath.Join(k.Dir, "cache")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Kubectl is Run where the output does not matter.
func (k *Kubernetes) Kubectl(args ...string) error {
	_, err := k.Run("", args...)
	return err
}

// Restart is that of the function, for the API server.
func (k *Kubernetes) Restart(t testing.TB, kill bool) {
	t.Helper()
	Restart(t, k.API, kill)
}

// Forget makes etcd forget what was, and the API server, which remembers it until it is
// started anew.
func (k *Kubernetes) Forget(t testing.TB) {
	t.Helper()
	compact(t, k.Keys, clientv3.WithCompactPhysical())
	k.Restart(t, true)
}

// FakeKubernetes is the kubeconfig of a server that is no API server, or one that can't be
// had to do what a test needs.
func FakeKubernetes(t testing.TB, h http.Handler) (kubeconfig string) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca, path := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, text, 0o600), servers.Kubeconfig(path, server.Listener.Addr().String(), ca, "token")); err != nil {
		t.Fatal(err)
	}
	return path
}
