package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/isthmus-mesh/isthmus/settings"
)

// How soon a server that is gone, or a link that drops everything, is noticed: after
// quiet the connection is asked for a sign of life, and given up when none comes.
const (
	quiet            = 4 * time.Second
	signOfLife       = 5 * time.Second
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 8 * time.Second
)

// callTimeout bounds every request but a watch. An API server takes up to a minute for a
// list when it has much to do.
const callTimeout = time.Minute

// fieldManager is who we are in metadata.managedFields.
const fieldManager = "isthmus"

// apiServer is a Kubernetes API server, spoken to by client-go's credentials: tokens that
// rotate, certificates, programs that make either.
type apiServer struct {
	url  *url.URL
	http *http.Client
	base *http.Transport
}

func newAPIServer(c Config) (*apiServer, error) {
	config, err := restConfig(c)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: server %q: %w", config.Host, err)
	}
	config.UserAgent = fieldManager
	wire, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	base, err := newTransport(wire)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	wrapped, err := transport.HTTPWrappersForConfig(wire, base)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &apiServer{url: server, http: &http.Client{Transport: wrapped}, base: base}, nil
}

func restConfig(c Config) (*rest.Config, error) {
	if c.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("kubeconfig: is missing, and this is no pod of a cluster; name the file, such as /etc/isthmus/kubeconfig")
		}
		if err != nil {
			return nil, fmt.Errorf("the pod's service account: %w; let the pod mount it (automountServiceAccountToken), or name a kubeconfig", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: c.Context},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %s: %w", c.Kubeconfig, err)
	}
	return config, nil
}

// newTransport is not client-go's own, which notices a link that drops everything only
// after 45 s.
func newTransport(c *transport.Config) (*http.Transport, error) {
	tlsConfig, err := transport.TLSConfigFor(c)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: quiet, Interval: signOfLife / 5, Count: 5, // for HTTP/1, which has no pings
	}}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
		TLSClientConfig: tlsConfig, TLSHandshakeTimeout: handshakeTimeout,
		ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 4,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: signOfLife, WriteByteTimeout: quiet + signOfLife},
		DisableCompression: c.DisableCompression,
	}
	if c.Proxy != nil {
		t.Proxy = c.Proxy
	}
	if c.DialHolder != nil {
		t.DialContext = c.DialHolder.Dial
	}
	return t, nil
}

func (a *apiServer) close() { a.base.CloseIdleConnections() }

// host names the server in errors.
func (a *apiServer) host() string { return a.url.Scheme + "://" + a.url.Host }

// request is one to the API server.
type request struct {
	verb        string // of RBAC, for errors
	method      string
	path        string
	query       url.Values
	contentType string
	body        []byte
}

// send sends a request and returns the answer if it is 2xx. The caller closes its body.
func (a *apiServer) send(ctx context.Context, r request) (*http.Response, error) {
	target := *a.url
	target.Path = strings.TrimSuffix(target.Path, "/") + r.path
	target.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("at %s: %w", a.host(), plainError(err))
	}
	req.Header.Set("Accept", "application/json")
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	response, err := a.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("at %s: %w", a.host(), plainError(err))
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, fmt.Errorf("at %s: %w", a.host(), refusalOf(response))
	}
	return response, nil
}

// call sends a request and reads the answer.
func (a *apiServer) call(ctx context.Context, r request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := a.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("at %s: %w", a.host(), plainError(err))
	}
	return body, nil
}

// plainError leaves out the URL, which says nothing that is not said already, and adds
// what to do.
func plainError(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	return tlsAdvice.To(err)
}

var tlsAdvice = settings.Advice{
	CA:     "set certificate-authority of the cluster in the kubeconfig to that of the API server",
	Name:   "set tls-server-name of the cluster in the kubeconfig to a name that the API server's certificate has",
	Plain:  "the server in the kubeconfig speaks no TLS: is it the API server?",
	Secure: "write https:// in the kubeconfig's server",
}
