package nameresolution

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/settings"
)

// DefaultResolveTimeout is how long a lookup waits for the first view when the
// configuration does not say.
const DefaultResolveTimeout = 2 * time.Second

// config is the component's configuration. docs/reference/sidecar.md describes each key.
type config struct {
	Resolver          string           `json:"resolver"`
	ResolverNamespace string           `json:"resolverNamespace"`
	Identity          *identity.Config `json:"identity"`
	Advertise         string           `json:"advertise"`
	Zone              any              `json:"zone"` // text, or a zoneEnv

	Store  map[string]any `json:"store"`
	Local  *localConfig   `json:"local"`
	Domain string         `json:"domain"`

	zone string // of Zone, where it is known

	Cluster        string        `json:"cluster"`
	LastGood       string        `json:"lastGood"`
	ResolveTimeout time.Duration `json:"resolveTimeout"`
	RetryCutOff    *bool         `json:"retryCutOff"` // nil: true
}

// zoneEnv names the environment variable that has the zone.
type zoneEnv struct {
	Env string `json:"env"`
}

// localConfig names the Dapr resolver for this cluster's own apps.
type localConfig struct {
	Component     string `json:"component"`
	Version       string `json:"version"`
	Configuration any    `json:"configuration"`
}

// example is what an error points to when nothing is configured.
const example = `such as {resolver: "127.0.0.1:7400", cluster: west, identity: {…}}`

// parseConfig reads what daprd hands over. Its error names every mistake by its key.
func parseConfig(configuration any) (*config, error) {
	c := &config{}
	if configuration == nil {
		return nil, errors.New("isthmus configuration: there is none; want spec.nameResolution.configuration " + example)
	}
	errs := settings.Decode("", configuration, c)
	if len(errs) == 0 {
		errs = c.check()
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("isthmus configuration: %w", errors.Join(errs...))
	}
	if c.ResolveTimeout == 0 {
		c.ResolveTimeout = DefaultResolveTimeout
	}
	if c.Domain == "" {
		c.Domain = catalog.DefaultDomain
	}
	return c, nil
}

func (c *config) check() (errs []error) {
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Resolver == "" && c.Store == nil:
		refuse("neither resolver nor store is there; name the resolver service, %s, or the config store to run without one", example)
	case c.Resolver != "" && c.Store != nil:
		refuse("resolver and store exclude each other; keep resolver to use the service, or store to run without it")
	case c.Resolver != "":
		errs = append(errs, c.checkService()...)
	default:
		errs = append(errs, c.checkStore()...)
	}
	if c.Cluster == "" {
		refuse("cluster: is missing; want the name of this cluster, as its resolver service has it")
	} else if err := catalog.CheckCluster(c.Cluster); err != nil {
		refuse("cluster: %w", err)
	}
	if c.Domain != "" {
		if err := catalog.CheckDomain(c.Domain); err != nil {
			refuse("domain: %w", err)
		}
	}
	if c.ResolveTimeout < 0 {
		refuse("resolveTimeout: %s is negative", c.ResolveTimeout)
	}
	return errs
}

// checkService checks what concerns the service.
func (c *config) checkService() (errs []error) {
	errs = append(errs, c.checkResolvers()...)
	if c.Local != nil {
		errs = append(errs, errors.New("local: is for running without a service, beside store; with resolver the service knows this cluster's apps"))
	}
	if c.Domain != "" {
		errs = append(errs, errors.New("domain: is for running without a service, beside store; with resolver the service says which it is"))
	}
	if c.Identity == nil {
		errs = append(errs, errors.New("identity: is missing; want identity: {sentry: {address: …}} or identity: {files: {cert: …, key: …, ca: …}}; "+
			"identity: {insecure: true} is plain text, for development"))
	} else if err := c.Identity.Check(); err != nil {
		errs = append(errs, err) // names its keys itself
	}
	if c.ResolverNamespace != "" {
		if err := catalog.CheckNamespace(c.ResolverNamespace); err != nil {
			errs = append(errs, fmt.Errorf("resolverNamespace: %w", err))
		}
	}
	if c.Zone != nil {
		errs = append(errs, c.readZone()...)
	}
	return errs
}

// readZone takes the zone from where the configuration says.
func (c *config) readZone() (errs []error) {
	zone, isText := c.Zone.(string)
	if !isText && reflect.ValueOf(c.Zone).Kind() != reflect.Map {
		return []error{fmt.Errorf("zone: is %v; want text, or {env: NAME}", c.Zone)}
	}
	if !isText {
		var from zoneEnv
		if errs := settings.Decode("zone", c.Zone, &from); len(errs) > 0 {
			return errs
		}
		if from.Env == "" {
			return []error{errors.New("zone: names no variable; want text, or {env: NAME}")}
		}
		zone = os.Getenv(from.Env) // empty where the platform does not know it
	} else if zone == "" {
		return []error{errors.New("zone: is empty; want the name of the zone, or leave the key out")}
	}
	if err := catalog.CheckZone(zone); err != nil {
		return []error{fmt.Errorf("zone: %w", err)}
	}
	c.zone = zone
	return nil
}

// checkStore checks what concerns running without a service.
func (c *config) checkStore() (errs []error) {
	for _, key := range []struct {
		name string
		set  bool
	}{{"identity", c.Identity != nil}, {"advertise", c.Advertise != ""}, {"zone", c.Zone != nil}, {"resolverNamespace", c.ResolverNamespace != ""}} {
		if key.set {
			errs = append(errs, fmt.Errorf("%s: is for the resolver service; there is none beside store", key.name))
		}
	}
	if c.Local == nil || c.Local.Component == "" {
		errs = append(errs, errors.New("local.component: is missing; without a service this cluster's own apps are left to a resolver of Dapr's, such as {component: mdns, version: v1}"))
	}
	return errs
}

// resolvers are the addresses of the service's replicas.
func (c *config) resolvers() []string {
	all := strings.Split(c.Resolver, ",")
	for i, address := range all {
		all[i] = strings.TrimSpace(address)
	}
	return all
}

func (c *config) checkResolvers() (errs []error) {
	all := c.resolvers()
	if len(all) > maxReplicas {
		errs = append(errs, fmt.Errorf("resolver: %d addresses; at most %d are taken, or one DNS name that stands for them", len(all), maxReplicas))
	}
	for i, address := range all {
		if err := checkTarget(address); err != nil {
			errs = append(errs, fmt.Errorf("resolver: %w", err))
		}
		if slices.Index(all, address) < i {
			errs = append(errs, fmt.Errorf("resolver: %q is there twice; name each replica once", address))
		}
	}
	return errs
}

// checkTarget checks an address of the service.
func checkTarget(address string) error {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%q: want unix:///path, with three slashes", address)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("%q: want host:port, such as \"127.0.0.1:7400\", or unix:///path; several replicas with commas between them", address)
	}
	return checkPort(address, port)
}

func checkPort(address, port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q: port %q is not a number from 1 to 65535", address, port)
	}
	return nil
}

// advertised is the address under which other sidecars reach this one: advertise, or
// daprd's own.
func (c *config) advertised(self Instance) (string, error) {
	host, port, key := self.Address, strconv.Itoa(self.Port), "the address of this sidecar"
	if c.Advertise != "" {
		key, host = "advertise", c.Advertise
		if h, p, err := net.SplitHostPort(c.Advertise); err == nil {
			host, port = h, p
		}
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return "", fmt.Errorf("%s: %q is no IP address; set advertise to the IP, or ip:port, at which others reach this sidecar", key, host)
	}
	if ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return "", fmt.Errorf("%s: %q is no address that others can reach; set advertise to one", key, host)
	}
	if err := checkPort(host, port); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return net.JoinHostPort(ip.Unmap().String(), port), nil
}
