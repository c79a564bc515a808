package check

import (
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/snapshot"
)

// Cluster is what the checks of a Kubernetes cluster read.
type Cluster struct {
	*snapshot.Snapshot
	Namespace string                   // of Isthmus
	Name      string                   // of the cluster that is to be; may be empty
	Status    *v1alpha1.StatusResponse // of the service; nil if it does not answer
	App       catalog.App              // that alone is looked at; zero: all
	Peer      string                   // the same
	// Refused are rights that the person lacks and the charts take. RefusedErr tells why they are not
	// known.
	Refused    []apiserver.Right
	RefusedErr error

	settings *settings
}

// settings are the keys of isthmus.yaml that checks compare with the cluster.
type settings struct {
	Cluster  string `yaml:"cluster"`
	Identity struct {
		TrustAnchorsFrom *struct{} `yaml:"trustAnchorsFrom"`
		Sentry           *struct {
			Namespace   string `yaml:"namespace"`
			TrustDomain string `yaml:"trustDomain"`
		} `yaml:"sentry"`
	} `yaml:"identity"`
	Listen struct {
		Gateway string `yaml:"gateway"`
	} `yaml:"listen"`
}

// OfCluster makes the checks of an installed Isthmus, or with pre those before it is installed.
func OfCluster(c *Cluster, pre bool) (all []Result) {
	c.settings = &settings{}
	if c.Config != nil { // what is wrong there the service says itself
		_ = yaml.Unmarshal([]byte(c.Config.Data["isthmus.yaml"]), c.settings)
	}
	f := &Facts{Status: &v1alpha1.StatusResponse{Cluster: c.Host}}
	for _, row := range Table {
		look := row.cluster
		if pre {
			look = row.pre
		}
		if look != nil {
			results := f.complete(row.Name, look(c))
			for i := range results {
				if results[i].Level == OK {
					results[i].Kind = ofCluster
				}
			}
			all = append(all, results...)
		}
	}
	return all
}

// Unreachable is the result for an API server that can't be read.
func Unreachable(host string, err error) []Result {
	found, fix := split(err.Error())
	if fix == "" {
		fix = "see kubectl version with the same context"
	}
	return []Result{{Check: "kubernetes", Level: Fail, Kind: ofCluster, Name: host, Found: found, Fix: fix}}
}

// cluster is a fault of the cluster itself.
func (c *Cluster) fault(level Level, found, fix string) []Result {
	return []Result{{Level: level, Kind: ofCluster, Name: c.Host, Found: found, Fix: fix}}
}

// oldest is the oldest minor release of Kubernetes 1 that the charts are for.
const oldest = 30

// kubernetesVersion finds a Kubernetes that is too old.
func kubernetesVersion(c *Cluster) []Result {
	if major, minor, ok := release(c.Version); ok && (major < 1 || major == 1 && minor < oldest) {
		return c.fault(Fail, fmt.Sprintf("it is Kubernetes %s", c.Version), fmt.Sprintf("upgrade it to 1.%d or newer", oldest))
	}
	return nil
}

// unread finds what the person may not read, so that checks left it out.
func unread(c *Cluster) (all []Result) {
	for _, u := range c.Unread {
		fix := "see that the API server answers"
		if code := apiserver.Code(u.Err); code == 403 || code == 401 {
			fix = "ask for the right, such as by the ClusterRole view; for Dapr's Secret only the key ca.crt is looked at"
		}
		all = append(all, Result{Level: Warn, Kind: ofCluster, Name: c.Host, Found: fmt.Sprintf("%s can't be read, and what takes it is not checked: %v", u.What, u.Err), Fix: fix})
	}
	return all
}

// controlPlane are the parts of Dapr that Isthmus needs.
var controlPlane = []string{"dapr-operator", "dapr-sentry", "dapr-sidecar-injector"}

// The releases of Dapr 1 that Isthmus is tried with.
const (
	oldestDapr = 17
	newestDapr = 18
)

// dapr finds a Dapr that is not there, not well, or elsewhere than the service thinks.
func dapr(c *Cluster) (all []Result) {
	if !c.API("dapr.io", "v1alpha1") {
		all = append(all, c.fault(Fail, "Dapr's custom resources are not there", "install Dapr by its chart, with its CRDs")...)
	}
	if c.unreadable("deployments") {
		return all
	}
	where := map[string][]string{}
	for _, d := range c.ControlPlane {
		where[d.Metadata.Name] = append(where[d.Metadata.Name], d.Metadata.Namespace)
		if slices.Contains(controlPlane, d.Metadata.Name) {
			all = append(all, c.controlPlanePart(d)...)
		}
	}
	var missing []string
	for _, part := range controlPlane {
		switch namespaces := where[part]; {
		case len(namespaces) == 0:
			missing = append(missing, part)
		case len(namespaces) > 1:
			all = append(all, c.fault(Fail, part+" is in several namespaces: "+strings.Join(namespaces, ", "), "remove all but one control plane of Dapr")...)
		}
	}
	if len(missing) > 0 {
		all = append(all, c.fault(Fail, "Dapr's control plane lacks "+strings.Join(missing, ", "), "install Dapr by its chart")...)
	}
	if s := c.settings.Identity.Sentry; s != nil && c.DaprNamespace() != "" && s.Namespace != c.DaprNamespace() {
		all = append(all, c.fault(Fail, fmt.Sprintf("Dapr is in namespace %s, and identity.sentry.namespace of the service is %q", c.DaprNamespace(), s.Namespace), "set dapr.namespace in the values of the chart isthmus")...)
	}
	return all
}

func (c *Cluster) controlPlanePart(d snapshot.Deployment) (all []Result) {
	name := d.Metadata.Namespace + "/" + d.Metadata.Name
	if (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) && d.Status.Ready == 0 {
		all = append(all, Result{Level: Fail, Kind: ofDeployment, Name: name, Found: "no pod of it is ready", Fix: "see kubectl describe deployment -n " + d.Metadata.Namespace + " " + d.Metadata.Name})
	}
	if major, minor, ok := release(d.Metadata.Labels["app.kubernetes.io/version"]); ok && (major != 1 || minor < oldestDapr || minor > newestDapr) {
		all = append(all, Result{Level: Warn, Kind: ofDeployment, Name: name, Found: fmt.Sprintf("it is Dapr %d.%d", major, minor), Fix: fmt.Sprintf("use Dapr 1.%d to 1.%d, which Isthmus is tried with", oldestDapr, newestDapr)})
	}
	return all
}

// unreadable tells whether something could not be read.
func (c *Cluster) unreadable(what string) bool {
	return slices.ContainsFunc(c.Unread, func(u snapshot.Unread) bool { return u.What == what })
}

// daprMTLS finds Dapr without mTLS, or in another trust domain than the service thinks.
func daprMTLS(c *Cluster) (all []Result) {
	for _, config := range c.Configurations {
		m := config.Spec.MTLS
		if config.Metadata.Name != "daprsystem" || config.Metadata.Namespace != c.DaprNamespace() || m == nil {
			continue
		}
		name := config.Metadata.Namespace + "/" + config.Metadata.Name
		if m.Enabled != nil && !*m.Enabled {
			all = append(all, Result{Level: Fail, Kind: ofConfiguration, Name: name, Found: "Dapr's mTLS is off: no gateway passes such connections on", Fix: "set global.mtls.enabled in the values of Dapr's chart"})
		}
		if s := c.settings.Identity.Sentry; s != nil && m.TrustDomain != "" && s.TrustDomain != m.TrustDomain {
			all = append(all, Result{Level: Fail, Kind: ofConfiguration, Name: name, Found: fmt.Sprintf("Dapr's trust domain is %s, and identity.sentry.trustDomain of the service is %q", m.TrustDomain, s.TrustDomain), Fix: "set dapr.trustDomain in the values of the chart isthmus"})
		}
	}
	return all
}

// trustBundle finds roots of Dapr that its Sentry will not keep.
func trustBundle(c *Cluster) []Result {
	namespace := c.DaprNamespace()
	what := snapshot.TrustBundle + " in namespace " + namespace
	roots := ""
	if c.Roots != nil {
		roots = c.Roots.Data["ca.crt"]
	}
	switch {
	case namespace == "" || c.unreadable("configmap "+namespace+"/"+snapshot.TrustBundle):
		return nil
	case c.Roots == nil || roots == "":
		return c.fault(Fail, "the ConfigMap "+what+" has no roots", "see that Dapr's Sentry runs, which writes them")
	case c.SecretRoots != "" && c.SecretRoots != roots:
		return c.fault(Fail, "the ConfigMap and the Secret "+what+" have other texts in ca.crt: when Sentry starts next, it makes a new root, and no sidecar trusts another until it restarts",
			"write the same text into both, byte for byte, before Sentry restarts")
	}
	return nil
}

// ownRootsThere finds a service that uses a copy of Dapr's roots.
func ownRootsThere(c *Cluster) []Result {
	var own []string
	for _, t := range c.Status.GetTrust() {
		if t.GetUse() == identity.OwnRoot {
			own = append(own, t.GetFingerprint())
		}
	}
	if c.Roots == nil || len(own) == 0 || c.settings.Identity.Sentry == nil {
		return nil
	}
	switch now := hexOf(identity.Fingerprints([]byte(c.Roots.Data["ca.crt"]))); {
	case !same(own, now):
		return c.fault(Fail, fmt.Sprintf("the service uses the roots %s, and Dapr's ConfigMap %s has %s", short(own), snapshot.TrustBundle, short(now)),
			"have the service follow it: identity.trustAnchorsFrom; wait some seconds if Sentry has just changed them")
	case c.settings.Identity.TrustAnchorsFrom == nil:
		return c.fault(Warn, "the service uses a copy of Dapr's roots, which will be old once Sentry changes them", "write identity: {trustAnchorsFrom: {configMap: "+snapshot.TrustBundle+"}} instead of trustAnchors")
	}
	return nil
}

// gatewayService finds a Service that other clusters can't use.
func gatewayService(c *Cluster) (all []Result) {
	i := slices.IndexFunc(c.Services, func(s snapshot.Service) bool { return s.Metadata.Name == snapshot.Gateway })
	if i < 0 {
		return nil // another way in
	}
	s := &c.Services[i]
	add := func(level Level, found, fix string) {
		all = append(all, Result{Level: level, Kind: ofKubernetesService, Name: c.Namespace + "/" + snapshot.Gateway, Found: found, Fix: fix})
	}
	if s.Spec.Type == "LoadBalancer" && len(s.Status.LoadBalancer.Ingress) == 0 && len(s.Spec.External) == 0 {
		add(Fail, "no load balancer has given it an address: other clusters don't reach this one", "see kubectl describe service -n "+c.Namespace+" "+snapshot.Gateway+"; without a load balancer, set gateway.service.type=NodePort")
	}
	_, listens, err := net.SplitHostPort(c.settings.Listen.Gateway)
	if err != nil {
		return all
	}
	for _, p := range s.Spec.Ports {
		if target := c.target(s, p); target != "" && target != listens {
			add(Fail, fmt.Sprintf("its port %d leads to port %s of the pods, and the gateway listens on %s", p.Number, target, listens), "set gateway.port in the values of the chart, and the same targetPort")
		}
	}
	if len(c.selected(s)) == 0 && !c.unreadable("pods of namespace "+c.Namespace) {
		add(Fail, "it selects no pod that runs", "see that the pods of the Deployment "+snapshot.Name+" run, and have the labels of the Service's selector")
	}
	return all
}

// selected are the pods that a service selects.
func (c *Cluster) selected(s *snapshot.Service) (all []*snapshot.Pod) {
	for i := range c.Pods {
		p := &c.Pods[i]
		fits := p.Metadata.Namespace == s.Metadata.Namespace && len(s.Spec.Selector) > 0
		for k, v := range s.Spec.Selector {
			fits = fits && p.Metadata.Labels[k] == v
		}
		if fits {
			all = append(all, p)
		}
	}
	return all
}

// target is the number of the pods' port that a service's port leads to; empty if it is not known.
func (c *Cluster) target(s *snapshot.Service, p snapshot.ServicePort) string {
	switch t := p.Target.(type) {
	case float64:
		return strconv.Itoa(int(t))
	case string:
		for _, pod := range c.selected(s) {
			for _, container := range append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...) {
				for _, port := range container.Ports {
					if port.Name == t {
						return strconv.Itoa(port.Number)
					}
				}
			}
		}
		return ""
	}
	return strconv.Itoa(p.Number)
}

// wanted tells whether an app is looked at.
func (c *Cluster) wanted(namespace, id string) bool {
	return c.App == (catalog.App{}) || c.App == catalog.App{Namespace: namespace, ID: id}
}

func hexOf(sums [][]byte) (all []string) {
	for _, sum := range sums {
		all = append(all, hex.EncodeToString(sum))
	}
	return all
}
