package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// AskRights asks which rights of the charts the person lacks. The maker of a role needs the rights
// in it, or the verb escalate.
func (c *Cluster) AskRights(ctx context.Context, server *apiserver.Server) {
	lacking, err := server.Lacking(ctx, installation(c.Namespace, c.DaprNamespace()))
	if err == nil {
		var escalates bool
		if escalates, err = server.Allows(ctx, apiserver.Right{Verb: "escalate", Group: rbacGroup, Resource: "clusterroles"}); err == nil && !escalates {
			var inRoles []apiserver.Right
			inRoles, err = server.Lacking(ctx, granted())
			lacking = append(lacking, inRoles...)
		}
	}
	c.Refused, c.RefusedErr = lacking, err
}

const rbacGroup = "rbac.authorization.k8s.io"

// installation are the rights to make what the charts have.
func installation(namespace, dapr string) (all []apiserver.Right) {
	for group, resources := range map[string][]string{
		"": {"serviceaccounts", "configmaps", "services", "secrets"}, "apps": {"deployments"}, "policy": {"poddisruptionbudgets"},
		"networking.k8s.io": {"networkpolicies"}, rbacGroup: {"rolebindings"},
	} {
		all = append(all, apiserver.Rights(group, namespace, resources, "create", "patch")...)
	}
	all = append(all, apiserver.Rights("apiextensions.k8s.io", "", []string{"customresourcedefinitions"}, "create", "patch")...)
	all = append(all, apiserver.Rights(rbacGroup, "", []string{"clusterroles", "clusterrolebindings"}, "create", "patch")...)
	all = append(all, apiserver.Rights("admissionregistration.k8s.io", "", []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}, "create", "patch")...)
	if dapr != "" {
		all = append(all, apiserver.Rights(rbacGroup, dapr, []string{"roles", "rolebindings"}, "create", "patch")...)
	}
	slices.SortStableFunc(all, func(a, b apiserver.Right) int { return strings.Compare(a.Group, b.Group) })
	return all
}

// granted are rights that the roles of the charts give with their default values.
func granted() []apiserver.Right {
	group, _, _ := strings.Cut(catalog.Version, "/")
	var plurals []string
	for _, d := range catalog.Definitions() {
		plurals = append(plurals, d.Plural)
	}
	all := apiserver.Rights(group, "", plurals, "get", "list", "watch", "create", "update", "delete")
	return append(all, apiserver.Rights("discovery.k8s.io", "", []string{"endpointslices"}, "list", "watch")...)
}

// installRights finds that the person can't install the charts.
func installRights(c *Cluster) []Result {
	if c.RefusedErr != nil {
		return c.fault(Warn, fmt.Sprintf("can't ask the API server what you may do: %v", c.RefusedErr), "see that it answers")
	}
	if len(c.Refused) == 0 {
		return nil
	}
	names := make([]string, len(c.Refused))
	for i, r := range c.Refused {
		names[i] = r.String()
	}
	return c.fault(Fail, "you may not "+some(names), "have somebody install the charts who may, such as a holder of the ClusterRole cluster-admin")
}

// admissionPolicies finds an API server that can't give pods their sidecars.
func admissionPolicies(c *Cluster) []Result {
	if c.Mutating {
		return nil
	}
	return c.fault(Warn, "the API server has no MutatingAdmissionPolicy, by which pods get their sidecars", "set sidecars.policy=none in the values of the chart, and annotate pods, as docs/how-to/install.md says; or upgrade Kubernetes to 1.36")
}

// podSecurity finds namespaces whose admission refuses Dapr's sidecars.
func podSecurity(c *Cluster) (all []Result) {
	var lacking []string
	for _, d := range c.ControlPlane {
		if d.Metadata.Name != "dapr-sidecar-injector" {
			continue
		}
		for _, container := range d.Spec.Template.Spec.Containers {
			env := map[string]string{}
			for _, e := range container.Env {
				env[e.Name] = e.Value
			}
			for name, value := range map[string]string{"SIDECAR_DROP_ALL_CAPABILITIES": "dapr_sidecar_injector.sidecarDropALLCapabilities=true", "SIDECAR_RUN_AS_NON_ROOT": "dapr_sidecar_injector.sidecarRunAsNonRoot=true"} {
				if set, ok := env[name]; ok && set != "true" {
					lacking = append(lacking, value)
				}
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	slices.Sort(lacking)
	for _, name := range slices.Sorted(maps.Keys(c.Namespaces)) {
		if c.Namespaces[name].Metadata.Labels["pod-security.kubernetes.io/enforce"] != "restricted" || name == c.Namespace || name == c.DaprNamespace() {
			continue
		}
		all = append(all, Result{Level: Warn, Kind: ofNamespace, Name: name, Found: "it enforces the profile restricted, which refuses pods with Dapr's sidecar as its injector makes it",
			Fix: "set " + strings.Join(lacking, " and ") + " in the values of Dapr's chart"})
	}
	return all
}

// loadBalancer finds a cluster where nothing gives the gateway an address.
func loadBalancer(c *Cluster) []Result {
	provider := ""
	for _, n := range c.Nodes {
		if p, _, ok := strings.Cut(n.Spec.ProviderID, "://"); ok {
			provider = p
		}
	}
	switch {
	case provider == "aws" && len(c.Groups["elbv2.k8s.aws"]) == 0:
		return c.fault(Warn, "the nodes are Amazon's, and the AWS Load Balancer Controller is not there", "install it, and set gateway.service.provider=aws in the values of the chart")
	case c.Balanced > 0, provider == "azure", provider == "gce", provider == "aws", provider == "k3s", c.unreadable("services"):
		return nil
	}
	return c.fault(Warn, "no Service has the address of a load balancer, and the nodes are of no known cloud: the gateway may get none", "install one such as MetalLB, or set gateway.service.type=NodePort in the values of the chart")
}

// clusterNames finds a name that the cluster can't have, and another Isthmus in it.
func clusterNames(c *Cluster) (all []Result) {
	for _, d := range c.Installed {
		if d.Metadata.Namespace == c.Namespace {
			continue
		}
		name, _ := strings.CutPrefix(d.Spec.Template.Metadata.Annotations["dapr.io/app-id"], "isthmus-")
		all = append(all, Result{Level: Fail, Kind: ofDeployment, Name: d.Metadata.Namespace + "/" + d.Metadata.Name,
			Found: fmt.Sprintf("there is an Isthmus already, of cluster %q: the charts have names of the whole cluster, so there is one in each", name), Fix: "remove it, or upgrade it in its own namespace"})
	}
	if c.Name == "" {
		return all
	}
	if err := catalog.CheckCluster(c.Name); err != nil {
		return append(all, Result{Level: Fail, Kind: ofCluster, Name: c.Name, Found: err.Error(), Fix: "choose another value for cluster"})
	}
	if slices.Contains(c.Peers, c.Name) {
		all = append(all, Result{Level: Fail, Kind: ofObject, Name: "Cluster " + c.Name, Found: "an object Cluster of this name is here: another cluster has it", Fix: "choose another value for cluster"})
	}
	return all
}
