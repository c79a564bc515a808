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
	"github.com/isthmus-mesh/isthmus/internal/strict"
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
	Zone              any              `json:"zone"`    // text, or a labelEnv
	Version           any              `json:"version"` // of the app: text, or a labelEnv
	Calls             []string         `json:"calls"`

	Store  map[string]any `json:"store"`
	Local  *localConfig   `json:"local"`
	Domain string         `json:"domain"`

	zone, version string // of Zone and Version, where they are known

	Cluster        string        `json:"cluster"`
	LastGood       string        `json:"lastGood"`
	ResolveTimeout time.Duration `json:"resolveTimeout"`
	RetryCutOff    *bool         `json:"retryCutOff"` // nil: true
	Guard          string        `json:"guard"`
	TellCaller     bool          `json:"tellCaller"`

	guard *catalog.GuardMode // of Guard; nil: the cluster's
	calls catalog.Calls      // of Calls, by readCalls

	known *identity.Source // instead of Identity
}

// labelEnv names the environment variable that has the zone or the version.
type labelEnv struct {
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
func parseConfig(configuration any) (*config, error) { return (&config{}).parse(configuration) }

// parse is parseConfig for a config that may know who it is for.
func (c *config) parse(configuration any) (*config, error) {
	if configuration == nil {
		return nil, errors.New("isthmus configuration: there is none; want spec.nameResolution.configuration " + example)
	}
	errs := strict.DecodeValue("", configuration, c)
	if len(errs) == 0 {
		errs = c.check()
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("isthmus configuration: %w", errs)
	}
	if c.ResolveTimeout == 0 {
		c.ResolveTimeout = DefaultResolveTimeout
	}
	if c.Domain == "" {
		c.Domain = catalog.DefaultDomain
	}
	return c, nil
}

func (c *config) check() (errs strict.Errors) {
	switch {
	case c.Resolver == "" && c.Store == nil:
		errs.Add("", "neither resolver nor store is there", "name the resolver service, "+example+", or the config store to run without one")
	case c.Resolver != "" && c.Store != nil:
		errs.Add("", "resolver and store exclude each other", "keep resolver to use the service, or store to run without it")
	case c.Resolver != "":
		errs = append(errs, c.checkService()...)
	default:
		errs = append(errs, c.checkStore()...)
	}
	if c.Cluster == "" {
		errs.Add("cluster", "is missing", "write the name of this cluster, as its resolver service has it")
	} else {
		errs.Merge("cluster", catalog.CheckCluster(c.Cluster))
	}
	if c.Domain != "" {
		errs.Merge("domain", catalog.CheckDomain(c.Domain))
	}
	return errs
}

// checkService checks what concerns the service.
func (c *config) checkService() (errs strict.Errors) {
	errs = append(errs, c.checkResolvers()...)
	if c.Local != nil {
		errs.Add("local", "is for running without a service, beside store", "leave it out; the service knows this cluster's apps")
	}
	if c.Domain != "" {
		errs.Add("domain", "is for running without a service, beside store", "leave it out; the service says which it is")
	}
	switch {
	case c.known != nil:
	case c.Identity == nil:
		errs.Add("identity", "is missing", "write identity: {sentry: {address: …}} or identity: {files: {cert: …, key: …, ca: …}}; "+
			"identity: {insecure: true} is plain text, for development")
	default:
		errs.Merge("identity", c.Identity.Check())
	}
	if c.ResolverNamespace != "" {
		errs.Merge("resolverNamespace", catalog.CheckNamespace(c.ResolverNamespace))
	}
	errs = append(errs, readLabel("zone", c.Zone, &c.zone, catalog.CheckZone)...)
	errs = append(errs, readLabel("version", c.Version, &c.version, catalog.CheckVersion)...)
	if c.Guard != "" {
		mode, err := catalog.ParseGuardMode(c.Guard)
		errs.Merge("guard", err)
		c.guard = &mode
	}
	return errs
}

// readCalls takes what an app in a namespace declares.
func (c *config) readCalls(namespace string) (err error) {
	if c.Calls == nil {
		return nil
	}
	if c.calls, err = catalog.ParseCalls(namespace, strings.Join(c.Calls, ",")); err != nil {
		return fmt.Errorf("isthmus configuration: calls: %w", err)
	}
	return nil
}

// readLabel takes a label of the instance from where the configuration says.
func readLabel(key string, from any, to *string, check func(string) error) strict.Errors {
	if from == nil {
		return nil
	}
	label, isText := from.(string)
	if !isText && reflect.ValueOf(from).Kind() != reflect.Map {
		return strict.Errors{{Path: key, What: fmt.Sprintf("is %v", from), Fix: "write a text, or {env: NAME}"}}
	}
	if !isText {
		var named labelEnv
		if errs := strict.DecodeValue(key, from, &named); len(errs) > 0 {
			return errs
		}
		if named.Env == "" {
			return strict.Errors{{Path: key, What: "names no variable", Fix: "write a text, or {env: NAME}"}}
		}
		if label = os.Getenv(named.Env); label == "" {
			return nil // the platform does not know it
		}
	} else if label == "" {
		return strict.Errors{{Path: key, What: "is empty", Fix: "write the name of the " + key + ", or leave the field out"}}
	}
	*to = label
	return strict.Below(key, check(label))
}

// checkStore checks what concerns running without a service.
func (c *config) checkStore() (errs strict.Errors) {
	for _, key := range []struct {
		name string
		set  bool
	}{{"identity", c.Identity != nil}, {"advertise", c.Advertise != ""}, {"zone", c.Zone != nil}, {"version", c.Version != nil}, {"resolverNamespace", c.ResolverNamespace != ""}, {"guard", c.Guard != ""}, {"calls", c.Calls != nil}} {
		if key.set {
			errs.Add(key.name, "is for the resolver service, and there is none beside store", "leave it out")
		}
	}
	if c.Local == nil || c.Local.Component == "" {
		errs.Add("local.component", "is missing", "name Dapr's resolver for this cluster's own apps, such as {component: mdns, version: v1}")
	}
	return errs
}

// source is where the view comes from, for people.
func (c *config) source() string {
	if c.Resolver == "" {
		return "config store"
	}
	return "resolver service " + strings.Join(c.resolvers(), ", ")
}

// resolvers are the addresses of the service's replicas.
func (c *config) resolvers() []string {
	all := strings.Split(c.Resolver, ",")
	for i, address := range all {
		all[i] = strings.TrimSpace(address)
	}
	return all
}

func (c *config) checkResolvers() (errs strict.Errors) {
	all := c.resolvers()
	if len(all) > maxReplicas {
		errs.Add("resolver", fmt.Sprintf("has %d addresses", len(all)), fmt.Sprintf("write at most %d, or one DNS name that stands for them", maxReplicas))
	}
	for i, address := range all {
		errs.Merge("resolver", checkTarget(address))
		if slices.Index(all, address) < i {
			errs.Add("resolver", fmt.Sprintf("%q is there twice", address), "name each replica once")
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
