package catalog

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
)

// Versions are patterns of the versions that a route leads to, separated by commas: '*' stands for any
// characters, and '?' for one. The zero value is every instance, also one without a version.
type Versions string

// Bounds of versions: characters of one or of a pattern, and patterns of a route.
const (
	MaxVersion  = 63
	MaxVersions = 16
)

// CheckVersion checks the version of an instance. A value of a label in Kubernetes is one, and so is a
// version of SemVer.
func CheckVersion(s string) error { return checkVersion(s, "._+-") }

// CheckVersionPattern checks one pattern of Versions.
func CheckVersionPattern(s string) error { return checkVersion(s, "._+-*?") }

func checkVersion(s, marks string) error {
	if s == "" || len(s) > MaxVersion {
		return fmt.Errorf("has %d characters; 1 to %d are taken", len(s), MaxVersion)
	}
	for i, c := range s {
		if letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'; !letter && !strings.ContainsRune(marks, c) {
			return fmt.Errorf("has %q at position %d; it has letters, digits and %s", c, i+1, strings.Join(strings.Split(marks, ""), " "))
		}
	}
	return nil
}

// ParseVersions is the inverse of String.
func ParseVersions(text string) (Versions, error) {
	if text == "" {
		return "", nil
	}
	for i, pattern := range strings.Split(text, ",") {
		if i == MaxVersions {
			return "", errors.New("more patterns of versions than are taken")
		}
		if err := CheckVersionPattern(pattern); err != nil {
			return "", fmt.Errorf("version %.80q %w", pattern, err)
		}
	}
	return Versions(text), nil
}

// List is the patterns.
func (v Versions) List() []string {
	if v == "" {
		return nil
	}
	return strings.Split(string(v), ",")
}

// Match tells whether a route leads to instances of a version, which is empty if unknown.
func (v Versions) Match(version string) bool {
	if v == "" {
		return true
	}
	for pattern := range strings.SplitSeq(string(v), ",") {
		if ok, _ := path.Match(pattern, version); ok && version != "" { // patterns were checked
			return true
		}
	}
	return false
}

// VersionToken names an instance of a version in [Domain.InstanceHost]. An instance that changes its
// version loses the name, so who asks for the former version reaches nothing. Without a version it is
// the token itself.
func VersionToken(token uint32, version string) uint32 {
	if version == "" {
		return token
	}
	return InstanceToken(fmt.Sprintf("%08x %s", token, version))
}

// narrow leaves of a route the instances whose version it is for.
func (r *Route) narrow() {
	if r.Versions == "" || r.State != Delegated && len(r.Addresses) == 0 {
		return
	}
	all := len(r.Addresses)
	if r.Gateway {
		all = len(r.Instances)
	}
	var places []int
	for i := range all {
		if v := r.Running.At(i); v != "" && r.Versions.Match(v) {
			places = append(places, i)
		}
	}
	r.Draining = 0 // nobody knows their versions
	if len(places) == 0 {
		running := r.Running
		r.end(Empty)
		r.Ready, r.Running = 0, running
		return
	}
	addresses, instances := r.Addresses, r.Instances
	r.Ready, r.Zones, r.Addresses, r.Instances = uint32(len(places)), r.Zones.Of(places), nil, nil
	for _, i := range places {
		if r.Gateway {
			r.Instances = append(r.Instances, VersionToken(instances[i], r.Running.At(i)))
		} else {
			r.Addresses = append(r.Addresses, addresses[i])
		}
	}
	if r.Gateway { // the app's name would lead to any version
		r.Addresses = []string{instanceLabel(r.Instances[0]) + "." + (&Route{Gateway: true, Addresses: addresses}).GatewayAddress()}
	}
}

// Narrowed tells whether only names of instances lead by the route: the name of the app leads to the
// cluster's gateway, where it stands for instances of all versions.
func (r *Route) Narrowed() bool { return r.Gateway && r.Versions != "" }

// ServerName is the name that leads to the route's instances at a gateway: that of the app, or of one
// instance if the route is narrowed.
func (r *Route) ServerName(d Domain, app App) string {
	if !r.Narrowed() || len(r.Addresses) == 0 {
		return d.Host(app, r.Cluster)
	}
	host, _, _ := net.SplitHostPort(r.Addresses[0]) // made with a port
	return host
}
