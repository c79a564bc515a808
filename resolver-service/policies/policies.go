// Package policies writes policies for the platform from who may call an app: Kubernetes
// NetworkPolicies, and those of Istio, Linkerd and Dapr. They are a second fence, or the only one
// where sidecars run without the guard.
//
// All but Dapr's hold for the port of a sidecar's internal server, and leave other ports as they
// are.
package policies

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Kind is for whom a policy is.
type Kind string

// The kinds.
const (
	Network Kind = "network" // NetworkPolicy
	Istio   Kind = "istio"   // AuthorizationPolicy
	Linkerd Kind = "linkerd" // Server, MeshTLSAuthentication, AuthorizationPolicy
	Dapr    Kind = "dapr"    // Configuration with accessControl
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Network, Istio, Linkerd, Dapr} }

// ParseKind reads a kind.
func ParseKind(s string) (Kind, error) {
	if k := Kind(s); slices.Contains(Kinds(), k) {
		return k, nil
	}
	return "", fmt.Errorf("%q is no kind of policy; want network, istio, linkerd or dapr", s)
}

// Settings are the block "policies" of the service's configuration.
type Settings struct {
	Gateway GatewayPods `yaml:"gateway"`
	// AppDomain is the trust domain of this cluster's apps, for Dapr; that of the service where empty.
	AppDomain string `yaml:"appDomain"`
	// MeshDomain is the trust domain of Istio's identities.
	MeshDomain string `yaml:"meshDomain"`
	// Kubernetes keeps policies in a cluster; nil: nothing is written.
	Kubernetes *Kubernetes `yaml:"kubernetes"`
}

// Kubernetes says where policies are kept, and of which kinds.
type Kubernetes struct {
	Kinds      []Kind `yaml:"kinds"`
	Kubeconfig string `yaml:"kubeconfig" file:""` // as of [apiserver.Config]
	Context    string `yaml:"context"`
	// DaprRestartsSidecars has to be set for the kind dapr: each change restarts the runtime of the
	// sidecars that use the Configuration.
	DaprRestartsSidecars bool `yaml:"daprRestartsSidecars"`
}

// GatewayPods are the pods that calls from other clusters come from.
type GatewayPods struct {
	Namespace      string            `yaml:"namespace"`
	Labels         map[string]string `yaml:"labels"`
	ServiceAccount string            `yaml:"serviceAccount"`
}

// Default fills in the defaults. The gateway is that of deploy/kubernetes.
func (s *Settings) Default(namespace string) {
	if s.Gateway.Namespace == "" {
		s.Gateway.Namespace = namespace
	}
	if s.Gateway.Labels == nil {
		s.Gateway.Labels = map[string]string{"app.kubernetes.io/name": "isthmus"}
	}
	if s.Gateway.ServiceAccount == "" {
		s.Gateway.ServiceAccount = "isthmus"
	}
	if s.MeshDomain == "" {
		s.MeshDomain = "cluster.local"
	}
}

// Check returns the mistakes.
func (s *Settings) Check() error {
	if err := catalog.CheckNamespace(s.Gateway.Namespace); err != nil {
		return strict.Below("gateway.namespace", err)
	}
	if len(s.Gateway.Labels) == 0 {
		return &strict.Error{Path: "gateway.labels", What: "is empty, which would be every pod of the namespace", Fix: "write the labels of the gateway's pods"}
	}
	if err := s.Kubernetes.check(); err != nil {
		return strict.Below("kubernetes", err)
	}
	if s.AppDomain != "" {
		if err := identity.CheckTrustDomain(s.AppDomain); err != nil {
			return strict.Below("appDomain", err)
		}
	}
	if strings.ContainsAny(s.MeshDomain, "/* \t\n") {
		return &strict.Error{Path: "meshDomain", What: fmt.Sprintf("%q is no trust domain", s.MeshDomain), Fix: "write Istio's, such as cluster.local"}
	}
	return nil
}

func (k *Kubernetes) check() error {
	if k == nil {
		return nil
	}
	if len(k.Kinds) == 0 {
		return &strict.Error{Path: "kinds", What: "names none", Fix: "write some of network, istio and linkerd"}
	}
	for i, kind := range k.Kinds {
		path := fmt.Sprintf("kinds[%d]", i)
		if kind == Dapr && !k.DaprRestartsSidecars {
			return &strict.Error{Path: path, What: "each change of a Dapr Configuration restarts the sidecars that use it", Fix: "print it by isthmus policies --kind dapr, or set daprRestartsSidecars: true"}
		}
		if _, err := ParseKind(string(kind)); err != nil {
			return strict.Below(path, err)
		}
		if slices.Contains(k.Kinds[:i], kind) {
			return &strict.Error{Path: path, What: string(kind) + " is there twice", Fix: "leave one out"}
		}
	}
	c := apiserver.Config{Kubeconfig: k.Kubeconfig, Context: k.Context}
	return c.Check()
}

// NeedsAccounts tells whether a kind that is kept names callers by their service accounts.
func (k *Kubernetes) NeedsAccounts() bool {
	return k != nil && (slices.Contains(k.Kinds, Istio) || slices.Contains(k.Kinds, Linkerd))
}

// Writer writes the policies of one cluster.
type Writer struct {
	Settings
	// Domain is the trust domain of the cluster's own apps, for Dapr.
	Domain string
	// Sharing are the apps of each service account, "namespace/name".
	Sharing map[string][]catalog.App
}

// NewWriter makes a Writer for apps whose trust domain is the service's own, unless the settings
// name another.
func NewWriter(s Settings, source *identity.Source) Writer {
	w := Writer{Settings: s, Domain: s.AppDomain}
	if id, ok := source.ID(); ok && w.Domain == "" && !source.Insecure() {
		w.Domain = id.TrustDomain
	}
	w.Domain = cmp.Or(w.Domain, "public") // as Dapr has it
	return w
}

// Object is an object of Kubernetes.
type Object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       any      `json:"spec"`
}

// Metadata is that of an Object.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// What marks an object that comes from here.
const (
	ManagedBy    = "app.kubernetes.io/managed-by"
	Manager      = "isthmus"
	appLabel     = "isthmus.dev/app"
	derivedFrom  = "isthmus.dev/derived-from"
	podLabel     = "dapr.io/app-id" // Dapr's injector puts it on pods
	inNamespace  = "kubernetes.io/metadata.name"
	internalPort = 50002 // daprd's default
)

// maxRules is how many objects an annotation names.
const maxRules = 20

// JSON is the object's text.
func (o *Object) JSON() []byte {
	text, _ := json.Marshal(o) // of such fields it can't fail
	return text
}

// Write writes the policies of one kind for an app, and notes the rules that they can't express. An
// app whose policy would let the wrong callers in, or keep the right ones out, gets a note and no
// policy.
func (w *Writer) Write(kind Kind, f *topology.Fence) (objects []Object, notes []string) {
	if err := f.App.CheckHost(); err != nil {
		return nil, []string{"no policy: " + err.Error()}
	}
	switch kind {
	case Network:
		return w.network(f)
	case Istio:
		return w.istio(f)
	case Linkerd:
		return w.linkerd(f)
	}
	return w.dapr(f)
}

func object(version, kind string, f *topology.Fence, spec any) Object {
	o := Object{APIVersion: version, Kind: kind, Spec: spec, Metadata: Metadata{
		Name: "isthmus-" + f.App.ID, Namespace: f.App.Namespace, Labels: map[string]string{ManagedBy: Manager, appLabel: f.App.ID},
	}}
	if len(f.Rules) > 0 {
		var names []string
		for _, key := range f.Rules[:min(len(f.Rules), maxRules)] {
			names = append(names, key.String())
		}
		if more := len(f.Rules) - maxRules; more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		o.Metadata.Annotations = map[string]string{derivedFrom: strings.Join(names, ", ")}
	}
	return o
}

type selector struct {
	MatchLabels      map[string]string `json:"matchLabels,omitempty"`
	MatchExpressions []expression      `json:"matchExpressions,omitempty"`
}

type expression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// pods selects those of an app.
func pods(app catalog.App) selector {
	return selector{MatchLabels: map[string]string{podLabel: app.ID}}
}

// portsOf are those of the app's internal servers.
func portsOf(f *topology.Fence) []uint16 {
	if len(f.Ports) == 0 {
		return []uint16{internalPort}
	}
	return f.Ports
}

func texts(ports []uint16) (all []string) {
	for _, p := range ports {
		all = append(all, strconv.Itoa(int(p)))
	}
	return all
}

// account is a service account of callers.
type account struct{ namespace, name string }

// accounts are those of all callers and, if there are callers in other clusters, the gateway's.
// Callers without one are noted, and so are apps that get in by another's.
func (w *Writer) accounts(f *topology.Fence) (all []account, notes []string) {
	callers := map[catalog.App]bool{}
	for _, c := range f.Callers {
		callers[c.App] = true
	}
	for _, c := range f.Callers {
		if len(c.Accounts) == 0 && c.App != f.App {
			notes = append(notes, fmt.Sprintf("caller %s is left out: no service account of its pods is known", c.App))
		}
		for _, name := range c.Accounts {
			a := account{c.App.Namespace, name}
			if slices.Contains(all, a) {
				continue
			}
			all = append(all, a)
			for _, other := range w.Sharing[a.namespace+"/"+a.name] {
				if !callers[other] {
					notes = append(notes, fmt.Sprintf("%s gets in as well: it runs under the service account %s/%s, as %s does", other, a.namespace, a.name, c.App))
				}
			}
		}
	}
	if len(f.Remote) > 0 {
		gateway := account{w.Gateway.Namespace, w.Gateway.ServiceAccount}
		if !slices.Contains(all, gateway) {
			all = append(all, gateway)
		}
		for _, cluster := range f.Direct {
			notes = append(notes, fmt.Sprintf("callers of %s are left out: they come without a gateway, and their service accounts are not known here", cluster.Name))
		}
	}
	return all, notes
}

// noAccounts is the note for an app that gets no policy.
const noAccounts = "no policy: of no caller is a service account known; set instances.kubernetes.serviceAccounts"
