package etcdclient

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// What a server takes unless it was started with other flags.
const (
	DefaultMaxRequestBytes = 3 << 19 // 1.5 MiB: --max-request-bytes
	DefaultMaxTxnOps       = 128     // --max-txn-ops
	defaultTimeout         = 10 * time.Second
)

// RequestOverhead is what of a request is left for all that is no value: keys, conditions
// and the header. longestPrefix keeps it enough.
const (
	RequestOverhead = 4 << 10
	longestPrefix   = 512
)

// Config is how to reach etcd, and as whom.
type Config struct {
	// Endpoints are the members' addresses for clients, host:port or a URL. Any of them
	// will do; when it is lost, the next is asked.
	Endpoints []string `yaml:"endpoints" json:"endpoints"`

	// Prefix stands before each key, so that several clusters can share one etcd.
	Prefix string `yaml:"prefix,omitempty" json:"prefix,omitempty"`

	// Username and Password are those of an etcd user; the password is read again each
	// time that the server wants it. With neither, a certificate in TLS may be the user.
	Username string           `yaml:"username,omitempty" json:"username,omitempty"`
	Password *settings.Secret `yaml:"password,omitempty" json:"password,omitempty"`

	TLS *settings.TLS `yaml:"tls,omitempty" json:"tls,omitempty"`

	// Timeout is how long one request may take; 10 s by default.
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`

	// MaxRequestBytes and MaxTxnOps are the servers' flags --max-request-bytes and
	// --max-txn-ops, where they were changed.
	MaxRequestBytes int `yaml:"maxRequestBytes,omitempty" json:"maxRequestBytes,omitempty"`
	MaxTxnOps       int `yaml:"maxTxnOps,omitempty" json:"maxTxnOps,omitempty"`
}

// WithDefaults is the configuration with all that was left out.
func (c Config) WithDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if c.MaxTxnOps == 0 {
		c.MaxTxnOps = DefaultMaxTxnOps
	}
	return c
}

// Check returns every mistake, with its key.
func (c Config) Check() error {
	var errs strict.Errors
	if len(c.Endpoints) == 0 {
		errs.Add("endpoints", "is missing", `name one member or more, such as ["127.0.0.1:2379"]`)
	}
	schemes := map[bool]bool{}
	for i, endpoint := range c.Endpoints {
		secure, err := c.secure(endpoint)
		if err != nil {
			errs.Merge(fmt.Sprintf("endpoints[%d]", i), err)
			continue
		}
		schemes[secure] = true
	}
	if len(schemes) > 1 {
		errs.Add("endpoints", "some are https and some are not", "reach all members in one way")
	}
	if len(c.Prefix) > longestPrefix {
		errs.Add("prefix", fmt.Sprintf("is %d bytes long", len(c.Prefix)), fmt.Sprintf("write at most %d", longestPrefix))
	}
	if (c.Username == "") != (c.Password == nil) {
		errs.Add("", "username and password go together", "name both or none")
	}
	errs.Merge("password", c.Password.Check())
	errs.Merge("tls", c.TLS.Check())
	if c.Timeout < 0 {
		errs.Add("timeout", fmt.Sprintf("%s is less than no time", c.Timeout), "write one such as 10s")
	}
	if n := c.MaxRequestBytes; n != 0 && n <= 2*RequestOverhead {
		errs.Add("maxRequestBytes", fmt.Sprintf("%d is too few for any object", n), fmt.Sprintf("write the servers' --max-request-bytes, %d by default", DefaultMaxRequestBytes))
	}
	if c.MaxTxnOps < 0 {
		errs.Add("maxTxnOps", fmt.Sprintf("%d is less than none", c.MaxTxnOps), fmt.Sprintf("write the servers' --max-txn-ops, %d by default", DefaultMaxTxnOps))
	}
	return errs.Err()
}

// secure tells whether an endpoint is reached by TLS. Its errors never quote what may be a
// password.
func (c Config) secure(endpoint string) (bool, error) {
	scheme, rest, found := strings.Cut(endpoint, "://")
	if !found {
		scheme, rest = "", endpoint
	}
	switch {
	case strings.Contains(rest, "@"):
		return false, &strict.Error{What: "holds a user", Fix: "put it into username and password"}
	case scheme != "" && scheme != "http" && scheme != "https":
		return false, fmt.Errorf("%q: want host:port, http://host:port or https://host:port", endpoint)
	case scheme == "http" && c.TLS != nil:
		return false, &strict.Error{What: fmt.Sprintf("%q is without TLS, and there is tls", endpoint), Fix: "write https, or leave tls out"}
	}
	if u, err := url.Parse("etcd://" + rest); err != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return false, fmt.Errorf("%q: want host:port and nothing after it", endpoint)
	}
	if host, port, err := net.SplitHostPort(strings.TrimSuffix(rest, "/")); err != nil || host == "" || port == "" {
		return false, fmt.Errorf("%q: want host:port, such as 127.0.0.1:2379", endpoint)
	}
	return scheme == "https" || scheme == "" && c.TLS != nil, nil
}
