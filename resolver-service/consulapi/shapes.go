package consulapi

// What is answered, as Consul 1.21 writes it. The tags named bexpr say which fields a
// filter may name.

// node is a machine that instances run on. Here it is a cluster: this one, whose node is
// the agent's, or another one, whose node is its gateway.
type node struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	indexes         `bexpr:"-"`
}

// indexes say at which index something came, and changed last.
type indexes struct {
	CreateIndex uint64
	ModifyIndex uint64
}

// serviceAddress is one more address of a service.
type serviceAddress struct {
	Address string
	Port    int
}

// weights are those that Consul's DNS goes by.
type weights struct {
	Passing int
	Warning int
}

// proxy and connect are always empty: Isthmus has no mesh of Consul's.
type proxy struct {
	Mode        string
	MeshGateway struct{} `bexpr:"-"`
	Expose      struct{} `bexpr:"-"`
}

type connect struct{}

// nodeService is one instance of a service.
type nodeService struct {
	ID                string
	Service           string
	Tags              []string
	Address           string
	TaggedAddresses   map[string]serviceAddress `json:",omitempty"`
	Meta              map[string]string
	Port              int `json:",omitempty"`
	Weights           weights
	EnableTagOverride bool
	Proxy             proxy
	Connect           connect
	PeerName          string
	indexes           `bexpr:"-"`
}

// healthCheck is a check and how it stands.
type healthCheck struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	Interval    string
	Timeout     string
	ExposedPort int
	Definition  struct{} `bexpr:"-"`
	indexes     `bexpr:"-"`
}

// entry is an instance in answers about health.
type entry struct {
	Node    *node
	Service *nodeService
	Checks  []*healthCheck
}

// serviceNode is an instance in answers of the catalog.
type serviceNode struct {
	ID                       string
	Node                     string
	Address                  string
	Datacenter               string
	TaggedAddresses          map[string]string
	NodeMeta                 map[string]string
	ServiceKind              string
	ServiceID                string
	ServiceName              string
	ServiceTags              []string
	ServiceAddress           string
	ServiceTaggedAddresses   map[string]serviceAddress `json:",omitempty"`
	ServiceWeights           weights
	ServiceMeta              map[string]string
	ServicePort              int
	ServiceSocketPath        string
	ServiceEnableTagOverride bool
	ServiceProxy             proxy
	ServiceConnect           connect
	ServiceLocality          *struct{} `bexpr:"-"`
	indexes                  `bexpr:"-"`
}

// nodeServices is the answer about one node, by the services' IDs.
type nodeServices struct {
	Node     *node
	Services map[string]*nodeService
}

// nodeServiceList is the same as a list.
type nodeServiceList struct {
	Node     *node
	Services []*nodeService
}

// agentService is a service that was registered here, as its owner sees it.
type agentService struct {
	ID                string
	Service           string
	Tags              []string
	Meta              map[string]string
	Port              int
	Address           string
	TaggedAddresses   map[string]serviceAddress `json:",omitempty"`
	Weights           weights
	EnableTagOverride bool
	ContentHash       string `json:",omitempty" bexpr:"-"`
	Datacenter        string `json:",omitempty" bexpr:"-"`
}

// serviceChecks is how a service that was registered here is.
type serviceChecks struct {
	AggregatedStatus string
	Service          *agentService
	Checks           []agentCheck
}

// agentCheck is a check in serviceChecks, where Consul writes it by its client's type.
type agentCheck struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	ExposedPort int
	Definition  agentCheckDefinition
	indexes
}

// agentCheckDefinition is never filled in.
type agentCheckDefinition struct {
	Interval, Timeout, DeregisterCriticalServiceAfter string

	HTTP          string
	Header        map[string][]string
	Method        string
	Body          string
	TLSServerName string
	TLSSkipVerify bool
	TCP           string
	TCPUseTLS     bool
	UDP           string
	GRPC          string
	OSService     string
	GRPCUseTLS    bool
}

// The states of a check, and of a service by its checks.
const (
	passing     = "passing"
	warning     = "warning"
	critical    = "critical"
	maintenance = "maintenance"
)

// status of a service is that of its worst check.
func status(checks []*healthCheck) string {
	worst := passing
	for _, c := range checks {
		switch {
		case c.Type == maintenance:
			return maintenance
		case c.Status == critical:
			worst = critical
		case c.Status == warning && worst == passing:
			worst = warning
		}
	}
	return worst
}
