package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Bounds and defaults of an AppInstance.
const (
	MaxPath         = 1024
	MaxHost         = 255
	MaxService      = 255
	MinInterval     = 100 * time.Millisecond
	MaxInterval     = time.Hour
	MinTimeout      = 10 * time.Millisecond
	MaxThreshold    = 100
	maxPort         = 65535
	DefaultInterval = 2 * time.Second
	DefaultTimeout  = time.Second // or the interval, if that is shorter
	DefaultPath     = "/v1.0/healthz"

	defaultHealthyAfter   = 1
	defaultUnhealthyAfter = 2
)

// instanceValidator checks an AppInstance.
type instanceValidator struct{ *validator }

func (v instanceValidator) appInstance(m *v1alpha1.AppInstance) catalog.Object {
	i := &catalog.AppInstance{Source: v.source()}
	v.ownName(m.Metadata, &i.Namespace, &i.Name, "write the app's namespace", "write a name for the instance", "give the instance another name")
	v.spec(m.Spec != nil, "write the instance: \"spec: {app: …, address: \"ip:port\"}\"")
	if m.Spec == nil {
		return i
	}
	i.App = intern(m.Spec.App)
	if v.required(m.Spec.App, "spec.app", "write the app-id") {
		v.check(catalog.CheckAppID(m.Spec.App), "spec.app", "write the app-id as daprd has it")
	}
	if v.required(m.Spec.Address, "spec.address", "write \"ip:port\" of the sidecar's internal gRPC server") {
		i.Address = v.instanceAddress(m.Spec.Address)
	}
	i.Zone = intern(m.Spec.Zone)
	v.check(catalog.CheckZone(m.Spec.Zone), "spec.zone", "write another")
	if i.Version = intern(m.Spec.Version); i.Version != "" {
		v.check(catalog.CheckVersion(i.Version), "spec.version", "write another, such as 2.1.0")
	}
	if m.Spec.Check != nil {
		i.Check = checkRules{v}.healthCheck(m.Spec.Check, i.Address.Port())
	}
	return i
}

// instanceAddress takes what another machine can dial: an IP of one host, and a port.
func (v instanceValidator) instanceAddress(s string) netip.AddrPort {
	const path, fix = "spec.address", "write \"ip:port\", such as 10.0.0.5:50002 or \"[2001:db8::5]:50002\""
	a, err := netip.ParseAddrPort(s)
	ip := a.Addr()
	var what string
	switch {
	case err != nil:
		what = "is no IP with a port"
	case a.Port() == 0:
		what = "has the port 0"
	case ip.Zone() != "":
		what = "has a zone, which is a name that one machine alone knows"
	case ip.Is4In6():
		what = "is an IPv4 address written as IPv6"
	case ip.IsLinkLocalUnicast():
		what = "is link-local, so only hosts on the same link reach it, and metadata services of clouds are there"
	case catalog.CheckAddress(a) != nil:
		what = "is not the address of one host"
	default:
		return a
	}
	v.refuse(path, fmt.Sprintf("%q %s", strict.Shorten(s), what), fix)
	return netip.AddrPort{}
}

// checkRules are the rules of an instance's health check.
type checkRules struct{ instanceValidator }

func (v checkRules) healthCheck(m *v1alpha1.HealthCheck, port uint16) *catalog.HealthCheck {
	c := &catalog.HealthCheck{Port: port, Interval: DefaultInterval}
	switch n := count(m.Tcp != nil, m.Http != nil, m.Grpc != nil); {
	case n == 0 && !v.there("spec.check.tcp") && !v.there("spec.check.http") && !v.there("spec.check.grpc"):
		v.refuse("spec.check", "does not say how to check", "write one of \"tcp: {}\", \"http: {port: 3500}\" and \"grpc: {}\"")
	case n > 1:
		v.refuse("spec.check", "says more than one way to check", "keep one of tcp, http and grpc")
	case m.Tcp != nil:
		c.Kind, c.Port = catalog.CheckTCP, v.port("spec.check.tcp.port", m.Tcp.Port, port)
	case m.Http != nil:
		v.httpCheck(m.Http, c)
	case m.Grpc != nil:
		c.Kind, c.Port = catalog.CheckGRPC, v.port("spec.check.grpc.port", m.Grpc.Port, port)
		c.Service, c.TLS = m.Grpc.Service, m.Grpc.Tls
		v.check(checkText("service", c.Service, MaxService), "spec.check.grpc.service", "write the service's full name")
	}
	if m.Interval != "" {
		c.Interval = v.duration("spec.check.interval", m.Interval, MinInterval, MaxInterval)
	}
	c.Timeout = min(DefaultTimeout, c.Interval)
	if m.Timeout != "" {
		c.Timeout = v.timeout(m.Timeout, c.Interval)
	}
	c.HealthyAfter = v.threshold("healthyAfter", m.HealthyAfter, defaultHealthyAfter)
	c.UnhealthyAfter = v.threshold("unhealthyAfter", m.UnhealthyAfter, defaultUnhealthyAfter)
	return c
}

// timeout is at most the interval, so that the checks of one instance never overlap. An
// interval that was refused bounds nothing.
func (v checkRules) timeout(s string, interval time.Duration) time.Duration {
	if interval < MinInterval || interval > MaxInterval {
		interval = MaxInterval
	}
	d, err := time.ParseDuration(s)
	if err == nil && d > interval && d <= MaxInterval {
		v.refuse("spec.check.timeout", fmt.Sprintf("%s is longer than the interval, %s", d, interval), "write a shorter timeout or a longer interval")
		return d
	}
	return v.duration("spec.check.timeout", s, MinTimeout, interval)
}

func (v checkRules) httpCheck(m *v1alpha1.HTTPCheck, c *catalog.HealthCheck) {
	c.Kind, c.Path, c.Host = catalog.CheckHTTP, DefaultPath, m.Host
	if c.Port = v.port("spec.check.http.port", m.Port, 0); m.Port == 0 && !v.there("spec.check.http.port") {
		v.refuse("spec.check.http.port", "is missing", "write the port, such as 3500 for a sidecar's own API")
	}
	if m.Path != "" {
		c.Path = m.Path
		if !strings.HasPrefix(m.Path, "/") {
			v.refuse("spec.check.http.path", fmt.Sprintf("%q does not begin with /", strict.Shorten(m.Path)), "write one such as "+DefaultPath)
		} else {
			v.check(cmp.Or(checkText("path", m.Path, MaxPath), checkEscapes(m.Path)), "spec.check.http.path", "write one such as "+DefaultPath)
		}
	}
	switch m.Scheme {
	case "", "http":
	case "https":
		c.TLS = true
	default:
		v.refuse("spec.check.http.scheme", fmt.Sprintf("%q is not known", strict.Shorten(m.Scheme)), "write http or https")
	}
	v.check(checkText("host", m.Host, MaxHost), "spec.check.http.host", "write a name, with or without a port")
}

// checkText holds what is sent as it is to printable ASCII without spaces.
func checkText(what, s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("the %s is %d characters long; at most %d are taken", what, len(s), most)
	}
	for i, c := range s {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("the %s has %q at position %d; printable ASCII without spaces is taken", what, c, i+1)
		}
	}
	return nil
}

// checkEscapes holds a path to RFC 3986, 2.1, and to what is sent of it.
func checkEscapes(path string) error {
	if _, err := url.PathUnescape(path); err != nil {
		return errors.New("the path has a % without two hexadecimal digits after it")
	}
	if strings.Contains(path, "#") {
		return errors.New("the path has a #, and what stands behind one is never sent")
	}
	return nil
}

// port reads a port, or the one that stands for none. A written 0 is refused, where it
// can be told from none.
func (v instanceValidator) port(path string, n uint32, otherwise uint16) uint16 {
	if n > maxPort || n == 0 && v.isZero(path) {
		v.refuse(path, fmt.Sprintf("%d is out of bounds", n), fmt.Sprintf("write a number from 1 to %d", maxPort))
		return 0
	}
	if n == 0 {
		return otherwise
	}
	return uint16(n)
}

func (v checkRules) threshold(name string, n uint32, otherwise int) int {
	path := "spec.check." + name
	if n > MaxThreshold || n == 0 && v.isZero(path) {
		v.refuse(path, fmt.Sprintf("%d is out of bounds", n), fmt.Sprintf("write a number from 1 to %d", MaxThreshold))
	}
	if n == 0 {
		return otherwise
	}
	return int(n)
}

// isZero tells whether a user wrote a zero.
func (v instanceValidator) isZero(path string) bool {
	if v.root == nil || !v.there(path) {
		return false
	}
	n := v.root.Find(path)
	return n.Kind == strict.Int && strings.Trim(n.Text, "0") == ""
}

func count(all ...bool) int {
	n := 0
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

func instanceToProto(i *catalog.AppInstance) *v1alpha1.AppInstance {
	spec := &v1alpha1.AppInstanceSpec{App: i.App, Address: i.Address.String(), Zone: i.Zone, Version: i.Version}
	if i.Check != nil {
		spec.Check = checkToProto(i.Check, i.Address.Port())
	}
	return &v1alpha1.AppInstance{
		ApiVersion: catalog.Version, Kind: string(catalog.KindAppInstance),
		Metadata: &v1alpha1.Metadata{Namespace: i.Namespace, Name: i.Name}, Spec: spec,
	}
}

func checkToProto(c *catalog.HealthCheck, otherwise uint16) *v1alpha1.HealthCheck {
	m := &v1alpha1.HealthCheck{}
	port := uint32(c.Port)
	if c.Port == otherwise {
		port = 0
	}
	switch c.Kind {
	case catalog.CheckTCP:
		m.Tcp = &v1alpha1.TCPCheck{Port: port}
	case catalog.CheckHTTP:
		m.Http = &v1alpha1.HTTPCheck{Port: uint32(c.Port), Host: c.Host}
		if c.Path != DefaultPath {
			m.Http.Path = c.Path
		}
		if c.TLS {
			m.Http.Scheme = "https"
		}
	case catalog.CheckGRPC:
		m.Grpc = &v1alpha1.GRPCCheck{Port: port, Service: c.Service, Tls: c.TLS}
	}
	if c.Interval != DefaultInterval {
		m.Interval = c.Interval.String()
	}
	if c.Timeout != min(DefaultTimeout, c.Interval) {
		m.Timeout = c.Timeout.String()
	}
	if c.HealthyAfter != defaultHealthyAfter {
		m.HealthyAfter = uint32(c.HealthyAfter)
	}
	if c.UnhealthyAfter != defaultUnhealthyAfter {
		m.UnhealthyAfter = uint32(c.UnhealthyAfter)
	}
	return m
}
