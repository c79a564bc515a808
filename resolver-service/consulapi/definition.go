package consulapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// serviceDefinition is the body of agent/service/register. What Consul writes in two ways
// is taken in both.
type serviceDefinition struct {
	Kind                   string `json:",omitempty"`
	ID                     string
	Name                   string
	Tags                   []string
	Address                string
	TaggedAddresses        map[string]serviceAddress
	TaggedAddressesSnake   map[string]serviceAddress `json:"tagged_addresses,omitempty"`
	Meta                   map[string]string
	Port                   int
	SocketPath             string
	Check                  *checkDefinition
	Checks                 []*checkDefinition
	Weights                *weights
	Token                  string `json:",omitempty"` // not used: who asks is who registers
	EnableTagOverride      bool
	EnableTagOverrideSnake bool            `json:"enable_tag_override,omitempty"`
	Locality               json.RawMessage `json:",omitempty"`
	Proxy                  json.RawMessage `json:",omitempty"`
	Connect                json.RawMessage `json:",omitempty"`
}

// checkDefinition is a check in the body of agent/service/register.
type checkDefinition struct {
	CheckID        string
	ServiceID      string `json:",omitempty"` // taken and left out, as in Consul
	ServiceIDSnake string `json:"service_id,omitempty"`
	checkFields
}

// checkRegistration is the body of agent/check/register.
type checkRegistration struct {
	ID             string
	ServiceID      string
	ServiceIDSnake string `json:"service_id,omitempty"`
	Token          string `json:",omitempty"`
	checkFields
}

// checkFields are those that both have.
type checkFields struct {
	Name   string
	Status string
	Notes  string

	TTL                            duration
	Interval                       duration
	Timeout                        duration
	DeregisterCriticalServiceAfter duration
	DeregisterAfterSnake           duration `json:"deregister_critical_service_after,omitzero"`
	SuccessBeforePassing           int
	FailuresBeforeWarning          int
	FailuresBeforeCritical         int
	OutputMaxSize                  int

	HTTP                  string
	Header                map[string][]string
	Method                string
	Body                  string
	DisableRedirects      bool
	DisableRedirectsSnake bool `json:"disable_redirects,omitempty"`
	TCP                   string
	TCPUseTLS             bool
	TCPUseTLSSnake        bool `json:"tcp_use_tls,omitempty"`
	GRPC                  string
	GRPCUseTLS            bool
	GRPCUseTLSSnake       bool `json:"grpc_use_tls,omitempty"`
	TLSServerName         string
	TLSServerNameSnake    string `json:"tls_server_name,omitempty"`
	TLSSkipVerify         bool
	TLSSkipVerifySnake    bool `json:"tls_skip_verify,omitempty"`

	// Those that are refused.
	ScriptArgs             []string `json:",omitempty"`
	ScriptArgsSnake        []string `json:"script_args,omitempty"`
	Args                   []string `json:"args,omitempty"`
	DockerContainerID      string   `json:",omitempty"`
	DockerContainerIDSnake string   `json:"docker_container_id,omitempty"`
	Shell                  string   `json:",omitempty"`
	UDP                    string   `json:",omitempty"`
	H2PING                 string   `json:",omitempty"`
	H2PingUseTLS           bool     `json:",omitempty"`
	H2PingUseTLSSnake      bool     `json:"h2ping_use_tls,omitempty"`
	OSService              string   `json:",omitempty"`
	AliasNode              string   `json:",omitempty"`
	AliasService           string   `json:",omitempty"`
	ProxyHTTP              string   `json:",omitempty"`
	ProxyGRPC              string   `json:",omitempty"`
}

// duration is a length of time as Consul reads it: "10s", or a number of nanoseconds.
type duration time.Duration

// UnmarshalJSON reads it. What is neither a text nor a number counts for nothing.
func (d *duration) UnmarshalJSON(text []byte) error {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	switch v := value.(type) {
	case string:
		length, err := time.ParseDuration(v)
		if err != nil {
			return err
		}
		*d = duration(length)
	case float64:
		*d = duration(v)
	}
	return nil
}

// MarshalJSON writes it as a text.
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// normalize brings the second way to write a field under the first.
func (f *checkFields) normalize() {
	if len(f.ScriptArgs) == 0 {
		f.ScriptArgs = f.Args
	}
	if len(f.ScriptArgs) == 0 {
		f.ScriptArgs = f.ScriptArgsSnake
	}
	if f.DeregisterCriticalServiceAfter == 0 {
		f.DeregisterCriticalServiceAfter = f.DeregisterAfterSnake
	}
	if f.TLSServerName == "" {
		f.TLSServerName = f.TLSServerNameSnake
	}
	f.DisableRedirects = f.DisableRedirects || f.DisableRedirectsSnake
	f.TCPUseTLS = f.TCPUseTLS || f.TCPUseTLSSnake
	f.GRPCUseTLS = f.GRPCUseTLS || f.GRPCUseTLSSnake
	f.TLSSkipVerify = f.TLSSkipVerify || f.TLSSkipVerifySnake
}

// asks tells whether the check is one that asks again and again.
func (f *checkFields) asks() bool {
	return len(f.ScriptArgs) > 0 || f.HTTP != "" || f.TCP != "" || f.UDP != "" || f.GRPC != "" || f.H2PING != "" || f.OSService != ""
}

// validate is what Consul holds a check to, in its words.
func (f *checkFields) validate() error {
	alias := f.AliasNode != "" || f.AliasService != ""
	switch {
	case f.Interval > 0 && f.TTL > 0:
		return words("Interval and TTL cannot both be specified")
	case f.asks() && f.Interval <= 0:
		return words("Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks")
	case f.asks() && alias:
		return words("Interval cannot be set for Alias checks")
	case alias && f.TTL > 0:
		return words("TTL must be not be set for Alias checks")
	case !f.asks() && !alias && f.TTL <= 0:
		return words("TTL must be > 0 for TTL checks")
	case f.OutputMaxSize < 0:
		return words("MaxOutputMaxSize must be positive")
	case f.FailuresBeforeWarning > f.FailuresBeforeCritical:
		return words("FailuresBeforeWarning can't be higher than FailuresBeforeCritical")
	}
	return nil
}

// kind is what Consul calls the check's type; empty for one that does not run here.
func (f *checkFields) kind() string {
	switch {
	case f.GRPC != "":
		return "grpc"
	case f.HTTP != "":
		return "http"
	case f.TTL > 0:
		return "ttl"
	case f.TCP != "":
		return "tcp"
	}
	return ""
}

// runnable is why a check that is valid does not run here.
func (f *checkFields) runnable() error {
	switch {
	case len(f.ScriptArgs) > 0:
		return &apiError{500, "Scripts are disabled on this agent from remote calls; to enable, configure 'enable_script_checks' to true"}
	case f.kind() == "":
		return &apiError{400, "Invalid check: Isthmus checks by HTTP, TCP, gRPC and TTL; register one of these"}
	}
	return nil
}

func validStatus(s string) bool { return s == passing || s == warning || s == critical }

// The bounds of metadata, which are Consul's.
const (
	mostMeta      = 64
	longestKey    = 128
	longestValue  = 512
	reservedKey   = "consul-"
	longestID     = 512 // of a service or a check; Consul has none
	longestOutput = 4 << 10
)

var metaKey = regexp.MustCompile(`\A[a-zA-Z0-9_-]+\z`).MatchString

func validateMeta(meta map[string]string) error {
	if len(meta) > mostMeta {
		return words(fmt.Sprintf("Node metadata cannot contain more than %d key/value pairs", mostMeta))
	}
	for key, value := range meta {
		if err := validatePair(key, value); err != nil {
			return words(fmt.Sprintf("Couldn't load metadata pair ('%s', '%s'): %v", key, value, err))
		}
	}
	return nil
}

func validatePair(key, value string) error {
	switch {
	case key == "":
		return words("Key cannot be blank")
	case !metaKey(key):
		return words("Key contains invalid characters")
	case len(key) > longestKey:
		return words(fmt.Sprintf("Key is too long (limit: %d characters)", longestKey))
	case strings.HasPrefix(key, reservedKey):
		return words("Key prefix '" + reservedKey + "' is reserved for internal use")
	case len(value) > longestValue:
		return words(fmt.Sprintf("Value is too long (limit: %d characters)", longestValue))
	}
	return nil
}

func (w *weights) validate() error {
	switch {
	case w == nil:
		return nil
	case w.Passing < 1:
		return words("Passing must be greater than 0")
	case w.Warning < 0:
		return words("Warning must be greater or equal than 0")
	case w.Passing > 65535 || w.Warning > 65535:
		return words("DNS Weight must be between 0 and 65535")
	}
	return nil
}

// normalize brings the second way to write a field under the first, and fills in what
// Consul does.
func (d *serviceDefinition) normalize() {
	if len(d.TaggedAddresses) == 0 {
		d.TaggedAddresses = d.TaggedAddressesSnake
	}
	d.EnableTagOverride = d.EnableTagOverride || d.EnableTagOverrideSnake
	if d.ID == "" {
		d.ID = d.Name
	}
	for _, c := range d.all() {
		c.normalize()
	}
}

// all are the checks of the definition.
func (d *serviceDefinition) all() (checks []*checkDefinition) {
	if d.Check != nil && !d.Check.empty() {
		checks = append(checks, d.Check)
	}
	for _, c := range d.Checks {
		if c != nil {
			checks = append(checks, c)
		}
	}
	return checks
}

// checkID is that of the n-th check of all.
func (d *serviceDefinition) checkID(n int) string {
	all := d.all()
	switch {
	case all[n].CheckID != "":
		return all[n].CheckID
	case len(all) == 1:
		return "service:" + d.ID
	}
	return fmt.Sprintf("service:%s:%d", d.ID, n+1)
}

// has tells whether a check is part of the definition.
func (d *serviceDefinition) has(id string, fields *checkFields) bool {
	for n, c := range d.all() {
		if d.checkID(n) == id && reflect.DeepEqual(&c.checkFields, fields) {
			return true
		}
	}
	return false
}

// empty tells whether a check was left out: clients may write one without anything in it.
func (c *checkDefinition) empty() bool {
	return !c.asks() && c.kind() == "" && c.CheckID == "" && c.Name == "" && c.Status == "" && c.Notes == "" &&
		c.Interval == 0 && c.AliasNode == "" && c.AliasService == ""
}

// validate is what Consul holds a definition to, in its order and its words.
func (d *serviceDefinition) validate() error {
	if err := d.Weights.validate(); err != nil {
		return &apiError{400, "Invalid Weights: " + err.Error()}
	}
	if err := validateMeta(d.Meta); err != nil {
		return &apiError{400, "Invalid Service Meta: " + err.Error()}
	}
	if d.Kind != "" || stated(d.Proxy) || stated(d.Connect) {
		return &apiError{400, "Validation failed: Isthmus has no service mesh of Consul's: leave Kind, Proxy and Connect out"}
	}
	if d.SocketPath != "" {
		return &apiError{400, "Validation failed: Isthmus leads calls to addresses: leave SocketPath out"}
	}
	for _, c := range d.all() {
		if err := c.validate(); err != nil {
			return &apiError{400, "Invalid check: " + err.Error()}
		}
	}
	for _, c := range d.all() {
		if c.Status != "" && !validStatus(c.Status) {
			return &apiError{400, "Status for checks must 'passing', 'warning', 'critical'"}
		}
	}
	return nil
}

// stated tells whether a part that Isthmus does not have was asked for.
func stated(part json.RawMessage) bool {
	text := strings.TrimSpace(string(part))
	return text != "" && text != "null" && text != "{}"
}

// bounded holds a definition to what Consul has no bounds for.
func (d *serviceDefinition) bounded() error {
	switch {
	case len(d.ID) > longestID || len(d.Name) > longestID:
		return &apiError{400, fmt.Sprintf("Validation failed: the ID or the name of the service is longer than %d characters", longestID)}
	case len(d.all()) > mostChecks:
		return &apiError{400, fmt.Sprintf("Invalid check: %d checks of one service; at most %d fit", len(d.all()), mostChecks)}
	case d.Port < 0 || d.Port > 65535:
		return &apiError{400, fmt.Sprintf("Validation failed: port %d is not within 0 and 65535", d.Port)}
	}
	for _, c := range d.all() {
		if len(c.CheckID) > longestID {
			return &apiError{400, fmt.Sprintf("Invalid check: its ID is longer than %d characters", longestID)}
		}
	}
	return nil
}

// words are an error in Consul's own words.
type words string

// Error is the text.
func (w words) Error() string { return string(w) }

// apiError is an answer other than 200: its text is the body.
type apiError struct {
	code int
	text string
}

// Error is the text.
func (e *apiError) Error() string { return e.text }
