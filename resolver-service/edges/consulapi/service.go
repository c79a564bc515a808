package consulapi

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bounds of a definition. Those of metadata and weights are Consul's.
const (
	mostMeta      = 64
	longestKey    = 128
	longestValue  = 512
	longestID     = 512 // of a service or a check
	longestOutput = 4 << 10
	mostWeight    = 65535
)

// The states of a check.
const (
	passing  = api.HealthPassing
	warning  = api.HealthWarning
	critical = api.HealthCritical
)

var metaKey = regexp.MustCompile(`\A[a-zA-Z0-9_-]+\z`).MatchString

func validStatus(s string) bool { return s == passing || s == warning || s == critical }

// readService holds a definition to what Consul does, and fills in what a client may leave out.
// It returns the checks of the definition.
func readService(d *api.AgentServiceRegistration) (checks []*checkSpec, err error) {
	d.ID = cmp.Or(d.ID, d.Name)
	switch {
	case d.Name == "":
		return nil, badRequest("Missing service name")
	case len(d.ID) > longestID || len(d.Name) > longestID:
		return nil, badRequest("Invalid service: its ID or name is longer than %d characters", longestID)
	case d.Port < 0 || d.Port > 65535:
		return nil, badRequest("Invalid service: port %d is not within 0 and 65535", d.Port)
	case d.Namespace != "" || d.Partition != "":
		return nil, badRequest("Invalid service: Isthmus has no namespaces or partitions of Consul's: leave them out")
	case d.Kind != "" || d.Proxy != nil || d.Connect != nil && !reflect.ValueOf(*d.Connect).IsZero():
		return nil, badRequest("Invalid service: Isthmus has no service mesh of Consul's: leave Kind, Proxy and Connect out")
	case d.SocketPath != "":
		return nil, badRequest("Invalid service: Isthmus leads calls to addresses: leave SocketPath out")
	case d.Weights != nil && (d.Weights.Passing < 1 || d.Weights.Warning < 0 || max(d.Weights.Passing, d.Weights.Warning) > mostWeight):
		return nil, badRequest("Invalid Weights: Passing is from 1 and Warning from 0 to %d", mostWeight)
	case len(d.Meta) > mostMeta:
		return nil, badRequest("Invalid Service Meta: %d pairs are more than %d", len(d.Meta), mostMeta)
	}
	for key, value := range d.Meta {
		if !metaKey(key) || len(key) > longestKey || len(value) > longestValue || strings.HasPrefix(key, "consul-") {
			return nil, badRequest("Invalid Service Meta: %s: a key has at most %d letters, digits, - and _, and does not begin with consul-; its value has at most %d bytes",
				quoted(key), longestKey, longestValue)
		}
	}
	return readChecks(d)
}

func readChecks(d *api.AgentServiceRegistration) (checks []*checkSpec, err error) {
	all := slices.DeleteFunc(append(api.AgentServiceChecks{d.Check}, d.Checks...), func(c *api.AgentServiceCheck) bool {
		return c == nil || reflect.ValueOf(*c).IsZero()
	})
	if len(all) > mostChecks {
		return nil, badRequest("Invalid check: the service has %d checks; at most %d fit", len(all), mostChecks)
	}
	d.Check, d.Checks = nil, all
	ids := map[string]bool{}
	for n, c := range all {
		if c.CheckID == "" {
			c.CheckID = "service:" + d.ID
			if len(all) > 1 {
				c.CheckID += fmt.Sprintf(":%d", n+1)
			}
		}
		c.Name = cmp.Or(c.Name, "Service '"+d.Name+"' check")
		if ids[c.CheckID] {
			return nil, badRequest("Invalid check: two have the ID %s", quoted(c.CheckID))
		}
		ids[c.CheckID] = true
		spec, err := readCheck(c)
		if err != nil {
			return nil, badRequest("Invalid check: %v", err)
		}
		checks = append(checks, spec)
	}
	return checks, nil
}

// checkSpec is a check as its definition says that it runs.
type checkSpec struct {
	*api.AgentServiceCheck
	kind       string // http, tcp, grpc or ttl
	host, port string // to connect to; empty for a TTL

	interval, timeout, ttl time.Duration
	reap                   time.Duration // how long the check may be critical before its service goes; 0: for ever
}

func readCheck(c *api.AgentServiceCheck) (*checkSpec, error) {
	spec := &checkSpec{AgentServiceCheck: c}
	for _, d := range []struct {
		name, text string
		to         *time.Duration
	}{
		{"Interval", c.Interval, &spec.interval}, {"Timeout", c.Timeout, &spec.timeout}, {"TTL", c.TTL, &spec.ttl},
		{"DeregisterCriticalServiceAfter", c.DeregisterCriticalServiceAfter, &spec.reap},
	} {
		if d.text == "" {
			continue
		}
		length, err := time.ParseDuration(d.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %s is no length of time", d.name, quoted(d.text))
		}
		*d.to = length
	}
	if err := spec.target(); err != nil {
		return nil, err
	}
	switch {
	case len(c.CheckID) > longestID:
		return nil, fmt.Errorf("its ID is longer than %d characters", longestID)
	case spec.kind == "" || c.UDP != "" || c.H2PING != "" || len(c.Args) > 0 || c.DockerContainerID != "" || c.AliasNode != "" || c.AliasService != "":
		return nil, errors.New("it is of a kind that does not run here; register one by HTTP, TCP, gRPC or TTL")
	case c.Status != "" && !validStatus(c.Status):
		return nil, errors.New("its Status is none of passing, warning and critical")
	case spec.kind == "ttl" && spec.interval > 0:
		return nil, errors.New("it has Interval and TTL; leave one out")
	case spec.kind != "ttl" && spec.interval <= 0:
		return nil, errors.New("it has no Interval > 0, which checks by HTTP, TCP and gRPC need")
	case c.FailuresBeforeWarning > c.FailuresBeforeCritical:
		return nil, errors.New("its FailuresBeforeWarning is higher than its FailuresBeforeCritical")
	}
	return spec, nil
}

// target finds out what kind of check it is, and what it connects to.
func (c *checkSpec) target() error {
	switch {
	case c.GRPC != "":
		address, _, _ := strings.Cut(c.GRPC, "/")
		c.kind = "grpc"
		c.host, c.port = hostAndPort(address)
	case c.HTTP != "":
		u, err := url.Parse(c.HTTP)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return fmt.Errorf("%s is no URL with http or https", quoted(c.HTTP))
		}
		c.kind, c.host, c.port = "http", u.Hostname(), cmp.Or(u.Port(), u.Scheme)
	case c.ttl > 0:
		c.kind = "ttl"
	case c.TCP != "":
		c.kind = "tcp"
		c.host, c.port = hostAndPort(c.TCP)
	}
	return nil
}

// hostAndPort are those of an address; all of it is the host if it has no port.
func hostAndPort(address string) (host, port string) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		return host, port
	}
	return address, ""
}

// apiError is an answer other than 200: its text is the body.
type apiError struct {
	code int
	text string
}

// Error is the text.
func (e *apiError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &apiError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// quoted is a client's text, safe in an answer.
func quoted(s string) string {
	const most = 100
	return fmt.Sprintf("%q", catalog.Clip(s, most))
}
