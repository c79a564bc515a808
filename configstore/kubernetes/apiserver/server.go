// Package apiserver speaks to a Kubernetes API server in plain HTTP and JSON, with the
// credentials that client-go finds: what the config store on Kubernetes and what reads
// EndpointSlices have in common.
package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
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

// lookEvery is the least time between two looks at the files that credentials are in.
var lookEvery = time.Second // tests don't wait

// longestBody is how much of an answer is read, which a page of a list is far from.
const longestBody = 256 << 20

// FieldManager is who we are in metadata.managedFields.
const FieldManager = "isthmus"

// Server is a Kubernetes API server, spoken to by client-go's credentials: tokens that
// rotate, certificates, programs that make either.
type Server struct {
	way *settings.Followed[*way]
	all *connections
}

// way is how the server is reached by the files of a moment. It is immutable.
type way struct {
	files []string // that it was made of
	print [sha256.Size]byte
	url   *url.URL
	http  *http.Client
	base  *http.Transport
}

// Config says where the API server is and who we are to it.
type Config struct {
	Kubeconfig string // file; the service account of the pod that this runs in, where empty
	Context    string // the one of the kubeconfig to use; its current one where empty
}

// Check returns the mistakes that show without reading a file.
func (c Config) Check() error {
	if c.Context != "" && c.Kubeconfig == "" {
		return &strict.Error{Path: "context", What: "names a context of a kubeconfig, and there is none", Fix: "add kubeconfig, or leave context out"}
	}
	return nil
}

// Look tells why the files can't be used now.
func (c Config) Look() error {
	server, err := New(c)
	if err == nil {
		server.Close()
	}
	return err
}

// New reads the kubeconfig, or the pod's service account, and asks the server nothing. It follows
// these files, and those that the kubeconfig names.
func New(c Config) (*Server, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return newServer(func(all *connections, old *way) (*way, error) {
		if old != nil {
			if print, err := printOf(old.files); err != nil || print == old.print {
				return old, err
			}
		}
		return c.way(all, old)
	})
}

// NewFor is [New] with a kubeconfig that was read already, of which it keeps a copy. It follows no
// file but those that client-go does.
func NewFor(config *rest.Config) (*Server, error) {
	return newServer(func(all *connections, old *way) (*way, error) {
		if old != nil {
			return old, nil
		}
		return newWay(config, all)
	})
}

func newServer(load func(all *connections, old *way) (*way, error)) (*Server, error) {
	a := &Server{all: &connections{open: map[*connection]bool{}}}
	var err error
	a.way, err = settings.Follow(lookEvery, func(old *way) (*way, error) { return load(a.all, old) })
	return a, err
}

var errWritten = errors.New("the files changed while they were read")

// way reads the files. What has the same bytes before and after is of one moment.
func (c Config) way(all *connections, old *way) (*way, error) {
	config, err := restConfig(c)
	if err != nil {
		return nil, err
	}
	files := c.files(config)
	before, err := printOf(files)
	if err != nil {
		return nil, strict.Below("kubeconfig", err)
	}
	if config, err = restConfig(c); err == nil {
		err = loadFiles(config)
	}
	if err != nil {
		return nil, strict.Below("kubeconfig", err)
	}
	w, err := newWay(config, all)
	if err != nil {
		return nil, err
	}
	if w.print, err = printOf(files); err != nil || w.print != before {
		return nil, cmp.Or(err, errWritten)
	}
	if w.files = files; old != nil {
		old.base.CloseIdleConnections() // the others end when they are idle, or with the Server
	}
	return w, nil
}

// files are all that a configuration comes from. Programs that make credentials are followed by
// client-go.
func (c Config) files(config *rest.Config) []string {
	return slices.DeleteFunc([]string{c.Kubeconfig, config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile}, func(path string) bool { return path == "" })
}

// loadFiles puts what is in files into the configuration itself: client-go follows some of them,
// each in its own time.
func loadFiles(config *rest.Config) error {
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	if config.BearerTokenFile == "" {
		return nil
	}
	text, err := os.ReadFile(config.BearerTokenFile)
	config.BearerToken, config.BearerTokenFile = string(bytes.TrimSpace(text)), ""
	return err
}

// printOf tells files from others.
func printOf(files []string) (print [sha256.Size]byte, err error) {
	all := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && len(bytes.TrimSpace(text)) == 0 {
			err = fmt.Errorf("%s is empty", file)
		}
		if err != nil {
			return print, err
		}
		sum := sha256.Sum256(text)
		all.Write(sum[:])
	}
	return [sha256.Size]byte(all.Sum(nil)), nil
}

func newWay(config *rest.Config, all *connections) (*way, error) {
	config = rest.CopyConfig(config)
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, strict.Below("kubeconfig", fmt.Errorf("server %q: %w", config.Host, err))
	}
	config.UserAgent = FieldManager
	wire, err := config.TransportConfig()
	if err != nil {
		return nil, strict.Below("kubeconfig", err)
	}
	base, err := newTransport(wire)
	if err != nil {
		return nil, strict.Below("kubeconfig", err)
	}
	base.DialContext = all.dialing(base.DialContext)
	wrapped, err := transport.HTTPWrappersForConfig(wire, base)
	if err != nil {
		return nil, strict.Below("kubeconfig", err)
	}
	return &way{url: server, http: &http.Client{Transport: wrapped}, base: base}, nil
}

func restConfig(c Config) (*rest.Config, error) {
	if c.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, &strict.Error{Path: "kubeconfig", What: "is missing, and this is no pod of a cluster", Fix: "name the file, such as /etc/isthmus/kubeconfig"}
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
		return nil, strict.Below("kubeconfig", fmt.Errorf("%s: %w", c.Kubeconfig, err))
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

// Close closes all connections. It is for when no request is under way; a later one opens
// another.
func (a *Server) Close() {
	a.way.Get().base.CloseIdleConnections()
	a.all.close()
}

// Host names the server in errors.
func (a *Server) Host() string { return a.way.Get().host() }

func (w *way) host() string { return w.url.Scheme + "://" + w.url.Host }

// URL is where a path is there.
func (a *Server) URL(path string) string {
	target := a.way.Get().at(path)
	return target.String()
}

func (w *way) at(path string) url.URL {
	target := *w.url
	target.Path = strings.TrimSuffix(target.Path, "/") + path
	return target
}

// Request is one to the API server.
type Request struct {
	Verb        string // of RBAC, for errors
	Method      string
	Path        string
	Query       url.Values
	ContentType string
	Accept      string // plain JSON where empty
	Body        []byte
}

// Send sends a request and returns the answer if it is 2xx. The caller closes its body.
func (a *Server) Send(ctx context.Context, r Request) (*http.Response, error) {
	return a.way.Get().send(ctx, r)
}

func (w *way) send(ctx context.Context, r Request) (*http.Response, error) {
	target := w.at(r.Path)
	target.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, target.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("at %s: %w", w.host(), plainError(err))
	}
	req.Header.Set("Accept", cmp.Or(r.Accept, "application/json"))
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}
	response, err := w.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("at %s: %w", w.host(), plainError(err))
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, fmt.Errorf("at %s: %w", w.host(), refusalOf(response))
	}
	return response, nil
}

// Call sends a request and reads the answer.
func (a *Server) Call(ctx context.Context, r Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := a.Send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestBody+1))
	if err == nil && len(body) > longestBody {
		err = fmt.Errorf("the answer to %s has more than %d MiB", r.Path, longestBody>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("at %s: %w", a.Host(), plainError(err))
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
