// Package snapshot reads what checks look at of a Kubernetes cluster, as a person may read it. It
// changes nothing, and what that person may not read is left out and noted.
package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// Names that the charts give.
const (
	Name        = "isthmus"         // of the service: its label, its Deployment, its ConfigMap
	Gateway     = "isthmus-gateway" // a Service
	Sidecars    = "isthmus-sidecars"
	TrustBundle = "dapr-trust-bundle"
	nameLabel   = "app.kubernetes.io/name"
)

// Snapshot is a cluster as it was read.
type Snapshot struct {
	Host       string
	Version    string              // of Kubernetes
	Groups     map[string][]string // API groups with their versions
	Mutating   bool                // there is MutatingAdmissionPolicy
	Namespaces map[string]Namespace
	Pods       []Pod     // of Isthmus, with sidecars, and all where pods are to have one
	Services   []Service // of Isthmus
	Balanced   int       // Services of the cluster with an address of a load balancer
	Nodes      []Node

	// Dapr.
	ControlPlane   []Deployment
	Configurations []Configuration
	Roots          *ConfigMap // its trust bundle; nil: there is none
	SecretRoots    string     // that of its Secret; empty: there is none, or it may not be read

	// Isthmus.
	Peers        []string     // names of objects Cluster
	Installed    []Deployment // services, of whatever namespace
	Config       *ConfigMap   // of the service; nil: there is none
	SidecarImage string       // that pods get; empty: none is given
	sidecars     *binding

	Unread []Unread
}

// Unread is something that could not be read.
type Unread struct {
	What string
	Err  error
}

// HasSidecars tells whether pods of a namespace are given sidecars with Isthmus.
func (s *Snapshot) HasSidecars(namespace string) bool {
	n, ok := s.Namespaces[namespace]
	if !ok || s.sidecars == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.sidecars.Spec.MatchResources.NamespaceSelector)
	return err == nil && selector.Matches(labels.Set(n.Metadata.Labels))
}

// API tells whether the API server has a resource's group and version.
func (s *Snapshot) API(group, version string) bool { return slices.Contains(s.Groups[group], version) }

// requests is how many are under way at once.
const requests = 8

// reader reads, side by side.
type reader struct {
	*apiserver.Server
	ctx context.Context
	all *errgroup.Group
	mu  sync.Mutex // of the snapshot
	s   *Snapshot
}

// Read reads a cluster where Isthmus is in a namespace, or is to be. It fails if the API server
// does not answer, or does not know us.
func Read(ctx context.Context, server *apiserver.Server, namespace string) (*Snapshot, error) {
	s := &Snapshot{Host: server.Host(), Groups: map[string][]string{}, Namespaces: map[string]Namespace{}}
	r := &reader{Server: server, ctx: ctx, s: s}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	var groups struct {
		Groups []struct {
			Name     string `json:"name"`
			Versions []struct {
				Version string `json:"version"`
			} `json:"versions"`
		} `json:"groups"`
	}
	for path, into := range map[string]any{"/version": &version, "/apis": &groups} {
		if _, err := r.get(path, into); err != nil {
			return nil, fmt.Errorf("the version and groups of Kubernetes: %w", err)
		}
	}
	s.Version = version.GitVersion
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			s.Groups[g.Name] = append(s.Groups[g.Name], v.Version)
		}
	}
	r.begin()
	r.readPlatform()
	r.readDapr()
	r.readIsthmus(namespace)
	_ = r.all.Wait() // nothing ends it
	r.begin()
	r.readPods(namespace) // by what was read
	r.readBundle()
	_ = r.all.Wait()
	slices.SortFunc(s.Unread, func(a, b Unread) int { return strings.Compare(a.What, b.What) })
	slices.SortFunc(s.Pods, func(a, b Pod) int {
		return strings.Compare(a.Metadata.Namespace+"/"+a.Metadata.Name, b.Metadata.Namespace+"/"+b.Metadata.Name)
	})
	return s, ctx.Err()
}

func (r *reader) begin() {
	r.all = &errgroup.Group{}
	r.all.SetLimit(requests)
}

// get reads one thing, and tells whether it is there.
func (r *reader) get(path string, into any) (bool, error) {
	body, err := r.Call(r.ctx, apiserver.Request{Verb: "get", Method: http.MethodGet, Path: path})
	if apiserver.Code(err) == http.StatusNotFound {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err == nil, err
}

// one reads an object and has it taken, if it is there.
func one[T any](r *reader, what, path string, take func(*Snapshot, *T)) {
	r.all.Go(func() error {
		var object T
		found, err := r.get(path, &object)
		r.note(what, err)
		if found {
			r.mu.Lock()
			defer r.mu.Unlock()
			take(r.s, &object)
		}
		return nil
	})
}

// many reads a collection and has it taken.
func many[T any](r *reader, what, path string, query url.Values, take func(*Snapshot, []T)) {
	r.all.Go(func() error {
		items, _, err := r.List(r.ctx, apiserver.Collection{Path: path, Query: query})
		if apiserver.Code(err) == http.StatusNotFound {
			return nil
		}
		objects := make([]T, len(items))
		for i, item := range items {
			if e := json.Unmarshal(item, &objects[i]); e != nil && err == nil {
				err = e
			}
		}
		r.note(what, err)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			take(r.s, objects)
		}
		return nil
	})
}

func (r *reader) note(what string, err error) {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.s.Unread = append(r.s.Unread, Unread{what, err})
	}
}

func labelled(selector string) url.Values { return url.Values{"labelSelector": {selector}} }

func in(namespace, plural string) string {
	return "/namespaces/" + url.PathEscape(namespace) + "/" + plural
}

func (r *reader) readPlatform() {
	many(r, "namespaces", "/api/v1/namespaces", nil, func(s *Snapshot, all []Namespace) {
		for _, n := range all {
			s.Namespaces[n.Metadata.Name] = n
		}
	})
	many(r, "nodes", "/api/v1/nodes", nil, func(s *Snapshot, all []Node) { s.Nodes = all })
	many(r, "services", "/api/v1/services", nil, func(s *Snapshot, all []Service) {
		for _, one := range all {
			if len(one.Status.LoadBalancer.Ingress) > 0 {
				s.Balanced++
			}
		}
	})
}

func (r *reader) readDapr() {
	many(r, "deployments", "/apis/apps/v1/deployments", labelled("app.kubernetes.io/part-of=dapr"), func(s *Snapshot, all []Deployment) { s.ControlPlane = all })
	many(r, "configurations.dapr.io", "/apis/dapr.io/v1alpha1/configurations", nil, func(s *Snapshot, all []Configuration) { s.Configurations = all })
}

// expressionImage finds the image in the policy of the chart.
var expressionImage = regexp.MustCompile(`'dapr\.io/sidecar-image': '([^']+)'`)

func (r *reader) readIsthmus(namespace string) {
	many(r, "deployments", "/apis/apps/v1/deployments", labelled(nameLabel+"="+Name), func(s *Snapshot, all []Deployment) { s.Installed = all })
	one(r, "configmap "+namespace+"/"+Name, "/api/v1"+in(namespace, "configmaps/"+Name), func(s *Snapshot, c *ConfigMap) { s.Config = c })
	many(r, "services of namespace "+namespace, "/api/v1"+in(namespace, "services"), nil, func(s *Snapshot, all []Service) { s.Services = all })
	many(r, "clusters.isthmus.dev", "/apis/"+catalog.Version+"/clusters", nil, func(s *Snapshot, all []Namespace) {
		for _, c := range all {
			s.Peers = append(s.Peers, c.Metadata.Name)
		}
	})
	for _, version := range []string{"v1", "v1beta1"} {
		if !r.mutates(version) {
			continue
		}
		base := "/apis/" + admission + "/" + version + "/"
		one(r, "mutatingadmissionpolicy "+Sidecars, base+"mutatingadmissionpolicies/"+Sidecars, func(s *Snapshot, p *policy) {
			for _, m := range p.Spec.Mutations {
				if found := expressionImage.FindStringSubmatch(m.Apply.Expression); found != nil {
					s.SidecarImage = found[1]
				}
			}
		})
		one(r, "mutatingadmissionpolicybinding "+Sidecars, base+"mutatingadmissionpolicybindings/"+Sidecars, func(s *Snapshot, b *binding) { s.sidecars = b })
		return
	}
}

// admission is the API group of MutatingAdmissionPolicy.
const admission = "admissionregistration.k8s.io"

// mutates tells whether the API server has MutatingAdmissionPolicy in a version.
func (r *reader) mutates(version string) bool {
	if !r.s.API(admission, version) {
		return false
	}
	var list struct {
		Resources []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	_, err := r.get("/apis/"+admission+"/"+version, &list)
	r.note("API group "+admission, err)
	for _, one := range list.Resources {
		r.s.Mutating = r.s.Mutating || one.Name == "mutatingadmissionpolicies"
	}
	return r.s.Mutating
}

// readPods reads the pods that checks look at.
func (r *reader) readPods(namespace string) {
	seen := map[string]bool{}
	add := func(s *Snapshot, all []Pod) {
		for _, p := range all {
			if key := p.Metadata.Namespace + "/" + p.Metadata.Name; !seen[key] && p.Runs() {
				seen[key] = true
				s.Pods = append(s.Pods, p)
			}
		}
	}
	many(r, "pods", "/api/v1/pods", labelled("dapr.io/sidecar-injected=true"), add)
	many(r, "pods of namespace "+namespace, "/api/v1"+in(namespace, "pods"), labelled(nameLabel+"="+Name), add)
	for name := range r.s.Namespaces {
		if r.s.HasSidecars(name) {
			many(r, "pods of namespace "+name, "/api/v1"+in(name, "pods"), nil, add)
		}
	}
}

// readBundle reads Dapr's roots where its control plane is.
func (r *reader) readBundle() {
	namespace := r.s.DaprNamespace()
	if namespace == "" {
		return
	}
	one(r, "configmap "+namespace+"/"+TrustBundle, "/api/v1"+in(namespace, "configmaps/"+TrustBundle), func(s *Snapshot, c *ConfigMap) { s.Roots = c })
	one(r, "secret "+namespace+"/"+TrustBundle, "/api/v1"+in(namespace, "secrets/"+TrustBundle), func(s *Snapshot, c *secret) { s.SecretRoots = c.text() })
}

// DaprNamespace is where Dapr's Sentry is; empty if there is none, or several.
func (s *Snapshot) DaprNamespace() string {
	var all []string
	for _, d := range s.ControlPlane {
		if d.Metadata.Name == "dapr-sentry" {
			all = append(all, d.Metadata.Namespace)
		}
	}
	if len(all) != 1 {
		return ""
	}
	return all[0]
}
