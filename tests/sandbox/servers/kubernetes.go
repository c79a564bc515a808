package servers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// KubernetesUser is somebody whom the API server knows by a token. RBAC decides what one
// may; the group system:masters may everything.
type KubernetesUser struct {
	Name   string
	Token  string
	Groups []string
}

// KubernetesOptions says how an API server is run.
type KubernetesOptions struct {
	Etcd  string // URL of the etcd that keeps its objects
	Users []KubernetesUser
	Args  []string // more flags

	// Controllers says that some run: so pods get the token of their account, and must have one.
	Controllers bool

	// Place is the network that it is in; nil: the one that this process is in. Host is the
	// address there at which it serves; 127.0.0.1 by default.
	Place sandbox.Place
	Host  string
}

// Kubernetes is an API server by itself, without controllers or nodes. It has RBAC on and
// serves TLS with a certificate of its own making.
type Kubernetes struct {
	process *sandbox.Process
	dir     string
	addr    string
	place   sandbox.Place

	Clients *sandbox.Authority // signs the client certificates that the server takes
}

// kubernetesServices is the range of addresses for services, of which there are none.
const kubernetesServices = "10.96.0.0/24"

// StartKubernetes starts an API server with its files in dir and waits until it serves,
// which takes some seconds.
func StartKubernetes(ctx context.Context, dir string, o KubernetesOptions) (*Kubernetes, error) {
	binary, err := sandbox.Binary("kube-apiserver")
	if err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	k := &Kubernetes{dir: dir, addr: net.JoinHostPort(o.Host, strconv.Itoa(port)), place: o.Place}
	if err := k.prepare(o.Users); err != nil {
		return nil, fmt.Errorf("start kube-apiserver: %w", err)
	}
	key, more := filepath.Join(dir, "service-accounts.key"), o.Args
	if !o.Controllers {
		more = append([]string{"--disable-admission-plugins=ServiceAccount"}, more...)
	}
	k.process, err = sandbox.Start(sandbox.Command{
		Name: "kube-apiserver", Path: binary, LogDir: dir, Place: o.Place,
		Args: append([]string{
			"--etcd-servers=" + o.Etcd, "--cert-dir=" + dir,
			"--bind-address=" + o.Host, "--advertise-address=" + o.Host, fmt.Sprintf("--secure-port=%d", port),
			"--service-cluster-ip-range=" + kubernetesServices, "--authorization-mode=RBAC",
			"--token-auth-file=" + filepath.Join(dir, "tokens.csv"), "--client-ca-file=" + filepath.Join(dir, "clients.crt"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key,
			"--service-account-signing-key-file=" + key, "--shutdown-delay-duration=0s",
		}, more...),
	})
	if err != nil {
		return nil, err
	}
	if err := k.waitReady(ctx); err != nil {
		_ = k.Kill()
		return nil, err
	}
	return k, nil
}

// prepare writes the key of service accounts, the root of client certificates and the users' tokens.
func (k *Kubernetes) prepare(users []KubernetesUser) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(k.dir, "service-accounts.key"), text, 0o600); err != nil {
		return err
	}
	if k.Clients, err = sandbox.NewAuthority(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(k.dir, "clients.crt"), k.Clients.Anchors(), 0o600); err != nil {
		return err
	}
	var tokens strings.Builder
	for _, u := range users {
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", u.Token, u.Name, u.Name, strings.Join(u.Groups, ","))
	}
	return os.WriteFile(filepath.Join(k.dir, "tokens.csv"), []byte(tokens.String()), 0o600)
}

// waitReady waits until the server says that it is ready.
func (k *Kubernetes) waitReady(ctx context.Context) error {
	for !k.ready(ctx) {
		select {
		case <-k.process.Done():
			return fmt.Errorf("kube-apiserver ended before it was ready; its log ends:\n%s", k.process.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready (%w); its log ends:\n%s", ctx.Err(), k.process.Tail(20))
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// ready asks once, by a connection of its own.
func (k *Kubernetes) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	transport, err := k.Transport()
	if err != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.URL()+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Transport makes a new connection to the server for each request, wherever it is.
func (k *Kubernetes) Transport() (*http.Transport, error) {
	text, err := os.ReadFile(k.CA())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", k.CA())
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return sandbox.Dial(ctx, k.place, network, address)
	}
	return &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}, nil
}

// Addr is where clients connect to, host:port.
func (k *Kubernetes) Addr() string { return k.addr }

// URL is Addr with its scheme.
func (k *Kubernetes) URL() string { return "https://" + k.Addr() }

// CA is the file with the certificate that the server's must chain to.
func (k *Kubernetes) CA() string { return filepath.Join(k.dir, "apiserver.crt") }

// PID is the id of the server's process.
func (k *Kubernetes) PID() int { return k.process.PID() }

// Kill ends the server with SIGKILL.
func (k *Kubernetes) Kill() error { return k.process.Kill() }

// Stop asks the server to end, and waits until it has.
func (k *Kubernetes) Stop(ctx context.Context) error { return k.process.Stop(ctx) }

// Start starts the server again, after a Kill or a Stop, and waits until it serves.
func (k *Kubernetes) Start(ctx context.Context) error {
	if err := k.process.Start(); err != nil {
		return err
	}
	return k.waitReady(ctx)
}

// Kubeconfig writes the file by which clients find the server at an address, host:port,
// which may be that of a link to it, as somebody with a token. ca is the file to check
// the server's certificate by.
func Kubeconfig(path, addr, ca, token string) error {
	return writeKubeconfig(path, addr, ca, fmt.Sprintf("{token: %q}", token))
}

// ClientKubeconfig is [Kubeconfig] for somebody with a client certificate, who may have a token,
// too.
func ClientKubeconfig(path, addr, ca string, cert, key []byte, token string) error {
	encoded := base64.StdEncoding.EncodeToString
	return writeKubeconfig(path, addr, ca, fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s, token: %q}", encoded(cert), encoded(key), token))
}

func writeKubeconfig(path, addr, ca, user string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: sandbox
  cluster: {server: "https://%s", certificate-authority: %q}
users:
- name: sandbox
  user: %s
contexts:
- name: sandbox
  context: {cluster: sandbox, user: sandbox}
current-context: sandbox
`, addr, ca, user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
