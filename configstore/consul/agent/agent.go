// Package agent speaks to an agent of Consul: who we are to it, what of its answers is
// believed, and whether it is still there. It is what the config store in Consul and what
// reads Consul's catalog have in common.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

const dialTimeout = 5 * time.Second

// longestAnswer is how many bytes of an answer are read: more than all objects of a store
// or all checks of a catalog have.
const longestAnswer = 1 << 30

// DefaultAddress is where an agent of Consul listens if it is not told otherwise.
const DefaultAddress = "http://127.0.0.1:8500"

// Config says where the agent is, and who we are to it. An empty one of the last three is not sent.
// Then the agent and the token decide.
type Config struct {
	Address    string // http://host:port, https://host:port or unix:///path; DefaultAddress where empty
	Token      *settings.Secret
	TLS        *settings.TLS
	Datacenter string
	Namespace  string
	Partition  string
}

// Check returns the mistakes that show without reading a file, with their keys.
func (c Config) Check() error {
	u, err := url.Parse(c.address())
	switch {
	case err != nil || strings.ContainsAny(c.Address, "@?"): // not shown: it may hold a password or a token
		return &strict.Error{Path: "address", What: "not a URL, or one with a user or a query in it", Fix: "write one such as http://127.0.0.1:8500, and a token by the key token"}
	case u.Scheme == "unix" && u.Path != "" && u.Host == "":
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Fragment == "":
	default:
		return &strict.Error{
			Path: "address", What: fmt.Sprintf("%q is no address of an agent", c.Address),
			Fix: "write one such as http://127.0.0.1:8500, https://consul.example:8501 or unix:///run/consul.sock",
		}
	}
	if c.TLS != nil && u.Scheme != "https" {
		return &strict.Error{Path: "tls", What: fmt.Sprintf("the address %s is not https", c.address()), Fix: "change it, or leave tls out"}
	}
	return strict.Below("token", c.Token.Check()).Err()
}

func (c Config) address() string {
	if c.Address == "" {
		return DefaultAddress
	}
	return c.Address
}

// Connect makes a client, and asks the agent nothing. It does not use the environment variables
// (CONSUL_HTTP_TOKEN, CONSUL_NAMESPACE and others) that Consul's own client takes missing settings
// from. A service's configuration alone decides.
func (c Config) Connect() (*api.Client, *http.Transport, error) {
	tls, err := c.TLS.Client()
	if err != nil {
		return nil, nil, strict.Below("tls", err)
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: tls.Config(), DialTLSContext: tls.Dialing(dialer.DialContext), TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
		DisableCompression: true, // costs more time than it saves between an agent and its neighbours
	}
	address, scheme := c.address(), "http"
	if socket, ok := strings.CutPrefix(address, "unix://"); ok {
		address, transport.Proxy = "http://127.0.0.1", nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	} else if strings.HasPrefix(address, "https://") {
		scheme = "https"
	}
	client, err := api.NewClient(&api.Config{
		Address: strings.TrimSuffix(address, "/"), Scheme: scheme, Transport: transport,
		HttpClient: &http.Client{
			Transport: &identified{transport, c.Token, c.Namespace, c.Partition},
			// Whoever an answer points to is not who the token is for. It is told as it is.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Token:      "see identified", // or it is taken from the environment
		Datacenter: c.Datacenter,
	})
	if err != nil {
		return nil, nil, strict.Below("address", err)
	}
	return client, transport, nil
}

// identified gives each request the token as it is just now, and the namespace and the
// partition of the settings.
type identified struct {
	next                 http.RoundTripper
	token                *settings.Secret
	namespace, partition string
}

// RoundTrip is that of http.RoundTripper.
func (i *identified) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := i.token.Read()
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("token: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Del("X-Consul-Token")
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	query := r.URL.Query()
	for name, value := range map[string]string{"ns": i.namespace, "partition": i.partition} {
		query.Del(name)
		if value != "" {
			query.Set(name, value)
		}
	}
	r.URL.RawQuery = query.Encode()
	response, err := i.next.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, longestAnswer)
	}
	return response, err
}

// Why an answer is not believed.
var (
	ErrNoLeader = errors.New("there is no cluster leader")
	ErrNoIndex  = errors.New("the answer has no X-Consul-Index; is this Consul, and does nothing in between drop headers?")
	ErrHidden   = errors.New("the token may not read all of it, and Consul leaves the rest out in silence")
)

// Believe tells whether an answer may be taken for the truth.
func Believe(meta *api.QueryMeta) error {
	switch {
	case meta.ResultsFilteredByACLs:
		return ErrHidden
	case meta.LastIndex == 0:
		return ErrNoIndex
	case !meta.KnownLeader:
		return ErrNoLeader
	}
	return nil
}

// Explain adds what to do about an error of a client, and the sentinel that a caller
// decides on. policy is the rules that the token needs, as Consul's ACLs have them.
func Explain(err error, policy string) error {
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err // without the URL, which has been said
	}
	switch {
	case errors.Is(err, configstore.ErrDenied):
		return err
	case strings.Contains(err.Error(), "ACL not found"):
		return fmt.Errorf("%w (%w); Consul knows no such token, or no longer: look after what token leads to", err, configstore.ErrDenied)
	case Forbidden(err), errors.Is(err, ErrHidden):
		return fmt.Errorf("%w (%w); give the token %s", err, configstore.ErrDenied, policy)
	case strings.Contains(err.Error(), "No cluster leader"), errors.Is(err, ErrNoLeader):
		return fmt.Errorf("%w; look at consul operator raft list-peers", err)
	}
	return tlsAdvice.To(err)
}

var tlsAdvice = settings.Advice{
	CA:     "set tls.ca to the certificate of the authority that signed the agent's",
	Name:   "set tls.serverName to a name that the agent's certificate has, such as server.dc1.consul",
	Plain:  "this port speaks no TLS: take the agent's port for https, or write http:// in address",
	Secure: "write https:// in address",
}

// Forbidden tells whether Consul refuses the token. Of a transaction's status there is
// nothing but the text.
func Forbidden(err error) bool {
	var status api.StatusError
	return errors.As(err, &status) && status.Code == http.StatusForbidden ||
		strings.Contains(err.Error(), "Permission denied") || strings.Contains(err.Error(), "ACL not found")
}
