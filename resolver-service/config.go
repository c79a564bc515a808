// Package resolverservice is the whole service in one process: it reads isthmus.yaml
// and wires the config store, the topology and the edges together.
package resolverservice

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/trustbundle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/admin"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/consulapi"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/xds"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/guests"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
	"github.com/isthmus-mesh/isthmus/tracing/otlp"
)

// Config is isthmus.yaml. docs/reference/service.md says what each key does; a test holds the
// two together.
type Config struct {
	Cluster          string `yaml:"cluster"`
	Domain           string `yaml:"domain"`
	Network          string `yaml:"network"`
	DefaultSelection string `yaml:"defaultSelection"`
	Guard            string `yaml:"guard"`
	// SelectionIsConsent lets a selection open the guards of other namespaces, without an AppExport.
	SelectionIsConsent bool     `yaml:"selectionIsConsent"`
	Declared           Declared `yaml:"declared"`
	Locality           string   `yaml:"locality"`
	DataDir            string   `yaml:"dataDir" file:""`

	Store       Store              `yaml:"store"`
	Instances   Instances          `yaml:"instances"`
	Replicas    *Replicas          `yaml:"replicas"`
	Listen      Listen             `yaml:"listen"`
	Identity    Identity           `yaml:"identity"`
	Operators   []string           `yaml:"operators"`
	Kubernetes  Kubernetes         `yaml:"kubernetes"`
	Resolver    Resolver           `yaml:"resolver"`
	Gateway     Gateway            `yaml:"gateway"`
	Development Development        `yaml:"development"`
	DNS         dns.Settings       `yaml:"dns"`
	Consul      consulapi.Settings `yaml:"consul"`
	XDS         xds.Settings       `yaml:"xds"`
	Console     console.Settings   `yaml:"console"`
	Admin       admin.Settings     `yaml:"admin"`
	Policies    policies.Settings  `yaml:"policies"`
	Guests      guests.Settings    `yaml:"guests"`
	Tracing     otlp.Config        `yaml:"tracing"`
	Log         Log                `yaml:"log"`

	Version string `yaml:"-"` // of the program, for status and metrics
	// clock is what peers are told of; nil for this machine's.
	clock func() time.Time
	// source is stream.Config.Source, for tests whose sidecars of many hosts are one process.
	source func(ctx context.Context, claimed netip.Addr) netip.Addr
	// moreEdges are beside those of the table, for tests.
	moreEdges []edge.Edge

	// Self is who this process is, in place of Identity, for one that has the service in it.
	Self *identity.Source `yaml:"-"`

	file string // that it was read from
	text []byte
	// formerStore is where an embedded store was before its path was relative to the file.
	formerStore string

	Cores int `yaml:"-"` // that the program's work is spread over; 0 for what Go says
}

// Declared says whose declarations of calls count as a selection.
type Declared struct {
	Annotations bool `yaml:"annotations"`
	Sidecars    bool `yaml:"sidecars"`
}

// Listen says which parts run and where. A part without an address does not run.
type Listen struct {
	Resolver string         `yaml:"resolver"` // host:port, or unix:///path
	DNS      []dns.Endpoint `yaml:"dns,single"`
	Gateway  string         `yaml:"gateway"`
	Apps     []AppListener  `yaml:"apps"`
	Consul   string         `yaml:"consul"`
	XDS      string         `yaml:"xds"`
	Console  string         `yaml:"console"`
	Admin    string         `yaml:"admin"`
	Operator string         `yaml:"operator"` // unix:///path, or [operatorOff]; empty: in dataDir
	// Kubernetes is on loopback, where the API server's port-forward leads.
	Kubernetes string `yaml:"kubernetes"`
	Debug      string `yaml:"debug"`
	// DebugExposed says that Debug is meant where more than this machine reaches it.
	DebugExposed bool `yaml:"debugExposed"`
}

// empty tells whether no part would run that anybody but an operator needs.
func (l Listen) empty() bool {
	l.Operator, l.Kubernetes, l.Console = "", "", ""
	return reflect.ValueOf(l).IsZero()
}

// Identity says who this process is.
type Identity struct {
	trustbundle.Identity `yaml:",inline"`

	Namespace       string   `yaml:"namespace"`       // of Isthmus' own apps
	TrustDomains    []string `yaml:"trustDomains"`    // whose apps are this cluster's, beside the service's own
	InsecureExposed bool     `yaml:"insecureExposed"` // insecure may listen on other addresses than loopback
}

// bundle reads the ConfigMap that the service follows anew; nil if it follows none.
func (i Identity) bundle(log *slog.Logger) func(context.Context) (string, []string, error) {
	from := i.TrustAnchorsFrom
	if from == nil {
		return nil
	}
	return func(ctx context.Context) (string, []string, error) {
		bundle, err := trustbundle.New(*from, cmp.Or(i.Sentry.Namespace, "default"), log)
		if err != nil {
			return "ConfigMap " + from.ConfigMap, nil, err
		}
		defer bundle.Close()
		text, err := bundle.Read(ctx)
		var roots []string
		for _, sum := range identity.Fingerprints(text) {
			roots = append(roots, hex.EncodeToString(sum))
		}
		return bundle.String(), roots, err
	}
}

// zone asks the pod's resolver for the zone; nil outside of Kubernetes, and where nothing is said to
// forward queries here.
func (c Config) zone(by *net.Resolver) func(context.Context) error {
	if len(c.Listen.DNS) == 0 || len(c.DNS.Forwarders) == 0 || os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil
	}
	return func(ctx context.Context) error {
		_, err := by.LookupNS(ctx, c.Domain+".")
		return err
	}
}

// Resolver bounds who connects to listen.resolver. Zero values are the defaults.
type Resolver struct {
	MaxConnections          int    `yaml:"maxConnections"`
	MaxConnectionsPerClient int    `yaml:"maxConnectionsPerClient"`
	SocketMode              string `yaml:"socketMode"` // of a unix socket
}

// Gateway bounds what the gateway takes. Zero values are the gateway's defaults.
type Gateway struct {
	Plaintext      bool          `yaml:"plaintext"`
	Allow          []string      `yaml:"allow"` // networks that exported instances must be in; none: any
	MaxConnections int           `yaml:"maxConnections"`
	MaxPerSource   int           `yaml:"maxPerSource"`
	MaxHellos      int           `yaml:"maxHellos"`
	HelloTimeout   time.Duration `yaml:"helloTimeout"`
	DialTimeout    time.Duration `yaml:"dialTimeout"`
	DrainTimeout   time.Duration `yaml:"drainTimeout"`
	StallTimeout   time.Duration `yaml:"stallTimeout"`
	AnswerTimeout  time.Duration `yaml:"answerTimeout"`
	Advertise      []string      `yaml:"advertise"` // addresses at which other clusters reach it, for invitations
	Internal       []string      `yaml:"internal"`  // addresses at which callers of this cluster reach it, for clusters that dial this one
}

// Log says which lines go to standard error, and how.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// The listeners where isthmus.yaml has no "listen".
const (
	DefaultResolver = "127.0.0.1:7400"
	DefaultGateway  = "127.0.0.1:15443"
)

// Values of defaultSelection.
const (
	selectLocal = "local"
	selectNone  = "none"
)

// Load reads and checks a file. The error has a line for each mistake: file:line:column: path: the
// mistake; the cure.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w; name the file with -c, and let this user read it", err)
	}
	return Parse(path, text)
}

// Parse is [Load] for a text that was read already.
func Parse(file string, text []byte) (*Config, error) {
	cfg := &Config{file: file, text: text}
	doc := strict.Decode(file, text, cfg)
	if !doc.Has("listen") {
		cfg.Listen = Listen{Resolver: DefaultResolver, DNS: []dns.Endpoint{{Address: dns.DefaultAddress}}, Gateway: DefaultGateway, Admin: admin.DefaultAddress, Debug: admin.DefaultDebugAddress}
	}
	cfg.setDefaults()
	cfg.place(file)
	checker{cfg, doc}.check()
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// place makes paths relative to the file that has them, whatever the working directory is.
func (c *Config) place(file string) {
	if e := c.Store.Embedded; e != nil {
		c.formerStore = e.Path
	}
	strict.Place(c, filepath.Dir(file))
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		value *string
		or    string
	}{
		{&c.Domain, catalog.DefaultDomain},
		{&c.DefaultSelection, selectLocal},
		{&c.Guard, catalog.GuardObserve.String()},
		{&c.Locality, catalog.NoLocality.String()},
		{&c.DataDir, "data"},
		{&c.Identity.Namespace, identity.SystemNamespace},
		{&c.Log.Level, "info"},
		{&c.Log.Format, "text"},
	} {
		if *d.value == "" {
			*d.value = d.or
		}
	}
	c.Policies.Default(c.Identity.Namespace)
	c.defaultStore()
	c.defaultReplica()
	if len(c.Operators) == 0 {
		c.Operators = []string{identity.CLIApp(c.Identity.Namespace).String()}
	}
}

// preferZone tells whether callers prefer their own zone by default.
func (c *Config) preferZone() bool { return c.Locality == catalog.PreferZone.String() }

// operators are the apps that may change objects and ask in others' names.
func (c *Config) operators() []catalog.App {
	apps := make([]catalog.App, len(c.Operators))
	for i, s := range c.Operators {
		apps[i], _ = catalog.ParseApp(s) // was checked
	}
	return apps
}

// dataDir is the service's own directory.
func (c *Config) dataDir() process.DataDir {
	return process.DataDir{Path: c.DataDir, Cluster: c.Cluster, Replica: c.replica()}
}

// process is what the process listens with.
func (c *Config) process() process.Config {
	return process.Config{Edges: c.edges(), Dir: c.dataDir(), Cores: c.Cores, HandOver: c.Replicas == nil}
}

// written are the directories that the service always writes to.
func (c *Config) written() []string {
	if c.Store.Embedded == nil {
		return []string{c.DataDir}
	}
	return []string{c.DataDir, filepath.Dir(c.Store.Path())}
}

// snapshot is the file that keeps the registered instances. It has the cluster's name, since
// two clusters tried out in one directory must not take each other's instances over. One of
// several replicas has none: its instances may be with another by now.
func (c *Config) snapshot() string {
	if c.Replicas != nil {
		return ""
	}
	return c.dataDir().Own("instances") + ".json"
}
