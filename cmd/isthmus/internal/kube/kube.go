// Package kube reaches a Kubernetes cluster as kubectl does: by a kubeconfig, as the user that
// stands there, and to a port of a pod through the API server.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Cluster is a Kubernetes cluster as the user of a kubeconfig. [apiserver.Server.Call] asks its
// API server anything else.
type Cluster struct {
	*apiserver.Server
	Context string // of the kubeconfig, which may have another name than the cluster

	config *rest.Config
}

// ErrNoContext says that a kubeconfig does not have the context that was named.
var ErrNoContext = errors.New("no such context")

// Open reads a context of a kubeconfig, and asks nobody. Without a file it is the one that
// kubectl takes: KUBECONFIG's, or ~/.kube/config. Without a context it is the current one.
func Open(kubeconfig, contextName string) (*Cluster, error) {
	rules, raw, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	where := strings.Join(rules.GetLoadingPrecedence(), " or ")
	if contextName, err = choose(raw, contextName, where); err != nil {
		return nil, err
	}
	named := raw.Contexts[contextName]
	if raw.Clusters[named.Cluster] == nil || raw.AuthInfos[named.AuthInfo] == nil {
		return nil, fmt.Errorf("kubeconfig: context %s of %s names cluster %q and user %q, and not both are there", contextName, where, named.Cluster, named.AuthInfo)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*raw, contextName, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: context %s of %s: %w", contextName, where, err)
	}
	server, err := apiserver.NewFor(config)
	if err != nil {
		return nil, fmt.Errorf("context %s of %s: %w", contextName, where, err)
	}
	return &Cluster{Server: server, Context: contextName, config: config}, nil
}

// choose is the context of a name, or the current one.
func choose(raw *api.Config, name, where string) (string, error) {
	if name == "" {
		name = raw.CurrentContext
	}
	switch {
	case name == "":
		return "", fmt.Errorf("kubeconfig: no context is the current one in %s; name one by --context, or another file by --kubeconfig", where)
	case raw.Contexts[name] == nil:
		return "", fmt.Errorf("kubeconfig: %w: %q is not in %s; %s", ErrNoContext, name, where, others(name, raw))
	}
	return name, nil
}

// Choose is the name of the context that [Open] takes.
func Choose(kubeconfig, contextName string) (string, error) {
	rules, raw, err := load(kubeconfig)
	if err != nil {
		return "", err
	}
	return choose(raw, contextName, strings.Join(rules.GetLoadingPrecedence(), " or "))
}

func load(kubeconfig string) (*clientcmd.ClientConfigLoadingRules, *api.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	rules.WarnIfAllMissing = false
	raw, err := rules.Load()
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w; name another file by --kubeconfig", err)
	}
	return rules, raw, nil
}

// Contexts are the names of the contexts in a kubeconfig, which is found as by [Open].
func Contexts(kubeconfig string) ([]string, error) {
	_, raw, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), nil
}

func others(name string, raw *api.Config) string {
	names := slices.Sorted(maps.Keys(raw.Contexts))
	if len(names) == 0 {
		return "no context is there"
	}
	return strict.Hint(name, names, "it has "+strings.Join(names, ", "))
}

// Config is a copy of how the API server is reached, for other clients.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Pod holds the fields of a pod that commands read.
type Pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
		OwnerReferences   []struct {
			Kind       string `json:"kind"`
			Name       string `json:"name"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Containers []Container `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		PodIP      string `json:"podIP"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// Container holds the fields of a container that commands read.
type Container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	Ports []struct {
		Name          string `json:"name"`
		ContainerPort int    `json:"containerPort"`
	} `json:"ports"`
}

// Ready tells whether the pod serves, and goes on doing so.
func (p *Pod) Ready() bool {
	ready := false
	for _, c := range p.Status.Conditions {
		ready = ready || c.Type == "Ready" && c.Status == "True"
	}
	return ready && p.Metadata.DeletionTimestamp == ""
}

// Workload is what made the pod and makes it anew, as kubectl names it, such as
// deployment/checkout. It is empty where nothing does.
func (p *Pod) Workload() string {
	for _, o := range p.Metadata.OwnerReferences {
		if !o.Controller {
			continue
		}
		if of, cut := strings.CutSuffix(o.Name, "-"+p.Metadata.Labels["pod-template-hash"]); cut && o.Kind == "ReplicaSet" {
			return "deployment/" + of
		}
		return strings.ToLower(o.Kind) + "/" + o.Name
	}
	return ""
}

// Port is the port of a name in the pod, or else the one that it often is.
func (p *Pod) Port(name string, often int) int {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == name {
				return port.ContainerPort
			}
		}
	}
	return often
}

// Pods are the pods of a namespace that a label selector selects, by name.
func (c *Cluster) Pods(ctx context.Context, namespace, selector string) ([]Pod, error) {
	items, _, err := c.List(ctx, apiserver.Collection{
		Path: "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods", Query: url.Values{"labelSelector": {selector}},
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
	}
	pods := make([]Pod, len(items))
	for i, item := range items {
		if err := json.Unmarshal(item, &pods[i]); err != nil {
			return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return pods, nil
}

// Get reads one object, or anything else that is JSON, below a path such as "/version".
func (c *Cluster) Get(ctx context.Context, path string, into any) error {
	body, err := c.Call(ctx, apiserver.Request{Verb: "get", Method: http.MethodGet, Path: path})
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}
