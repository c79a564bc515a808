package api

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// introductions reads what a cluster is like, who is told of it, and whom it introduces.
func (v clusterValidator) introductions(spec *v1alpha1.ClusterSpec, c *catalog.Cluster) {
	c.Labels = v.labels("spec.labels", spec.GetLabels())
	if m := spec.GetIntroduceTo(); m != nil {
		const path = "spec.introduceTo"
		if spec.GetGuest() != nil || spec.GetTunnel() != "" {
			v.refuse(path, "is for a cluster that others can reach at its gateways, as this one does", "leave it out: a guest, or a cluster with a tunnel, takes a Cluster object of its own in each cluster")
		} else if len(spec.GetGateways()) == 0 && !v.there("spec.gateways") {
			v.refuse(path, "is for a cluster with gateways, at which others reach it", "write the gateways beside it, or leave it out")
		} else if spec.GetTrust().GetRoots() != "" && spec.GetTrust().GetDomain() == "" {
			v.refuse(path, "is for a cluster with a trust domain, since nobody takes roots from another that would count for all", "write spec.trust.domain beside its roots, or leave it out")
		}
		s := v.selector(path, m.Names, m.Labels)
		c.IntroduceTo = &s
	}
	if m := spec.GetIntroduces(); m != nil {
		const path = "spec.introduces"
		if spec.GetGuest() != nil {
			v.refuse(path, "is not for a guest, which gets calls and says nothing of other clusters", "leave it out, or guest")
		}
		c.Introduces = &catalog.Introduces{ClusterSelector: v.selector(path, m.Names, m.Labels), TrustDomains: v.patterns(path+".trustDomains", m.TrustDomains, catalog.MaxTrustPatterns)}
	}
}

func (v clusterValidator) selector(path string, names, labels []string) catalog.ClusterSelector {
	if len(names) == 0 && len(labels) == 0 && !v.there(path+".names") && !v.there(path+".labels") {
		v.refuse(path, "selects by neither names nor labels", `write at least one, such as names: ["*"] for every cluster`)
	}
	return catalog.ClusterSelector{Names: v.patterns(path+".names", names, catalog.MaxClusterNames), Labels: v.labels(path+".labels", labels)}
}

func (v clusterValidator) patterns(path string, texts []string, most int) (all []string) {
	if v.there(path) && len(texts) == 0 {
		v.refuse(path, "is empty, and matches nothing", "write at least one, or leave it out")
	}
	if !v.atMost(path, len(texts), most, "use *, which stands for any characters") {
		return nil
	}
	for i, text := range texts {
		if text != "" {
			v.check(catalog.CheckNamePattern(text), fmt.Sprintf("%s[%d]", path, i), `write a name, or a pattern such as "eu-*"`)
		}
		all = append(all, intern(text))
	}
	return all
}

func (v clusterValidator) labels(path string, texts []string) (all []string) {
	if v.there(path) && len(texts) == 0 {
		v.refuse(path, "is empty", "write at least one, such as region=eu, or leave it out")
	}
	if !v.atMost(path, len(texts), catalog.MaxLabels, "leave some out") {
		return nil
	}
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		if text == "" || !v.check(catalog.CheckClusterLabel(text), at, "write it as name=value, such as region=eu") {
			continue
		}
		if j := slices.Index(texts, text); j < i {
			v.refuse(at, fmt.Sprintf("%s is there twice, first as %s[%d]", text, path, j), "keep one of them")
		}
		all = append(all, intern(text))
	}
	return all
}

func introductionsToProto(c *catalog.Cluster, spec *v1alpha1.ClusterSpec) {
	spec.Labels = c.Labels
	if s := c.IntroduceTo; s != nil {
		spec.IntroduceTo = &v1alpha1.ClusterSelector{Names: s.Names, Labels: s.Labels}
	}
	if i := c.Introduces; i != nil {
		spec.Introduces = &v1alpha1.Introduces{Names: i.Names, Labels: i.Labels, TrustDomains: i.TrustDomains}
	}
}

// Introduction is what others are told of a cluster: its name, labels, gateways and trust.
func Introduction(c *catalog.Cluster) *v1alpha1.Cluster {
	trust := c.Trust
	trust.Rotation = "" // the introducer's object follows the cluster's roots, and its word the object
	return ToProto(&catalog.Cluster{
		Name: c.Name, Labels: c.Labels, Gateways: c.Gateways, AppGateways: c.AppGateways, Trust: trust, RampUp: catalog.DefaultRampUp,
	}).(*v1alpha1.Cluster)
}

// MaxIntroduction bounds an introduced cluster, in bytes of its message.
const MaxIntroduction = 128 << 10

// ParseIntroduction reads what another cluster says of one. It holds it to every rule for a Cluster
// object, and to saying no more than an introduction does.
func ParseIntroduction(m *v1alpha1.Cluster) (*catalog.Cluster, error) {
	if n := proto.Size(m); n > MaxIntroduction {
		return nil, fmt.Errorf("is %d bytes long; at most %d are taken", n, MaxIntroduction)
	}
	if err := catalog.CheckCluster(m.GetMetadata().GetName()); err != nil {
		return nil, err
	}
	object, err := DecodeJSON(KeyPath(catalog.Key{Kind: catalog.KindCluster, Name: m.GetMetadata().GetName()}), appendJSON(nil, m.ProtoReflect()))
	if err != nil {
		return nil, err
	}
	c, ok := object.(*catalog.Cluster)
	switch {
	case !ok:
		return nil, errors.New("is no Cluster")
	case len(c.Gateways) == 0:
		return nil, errors.New("has no gateway, at which it could be reached")
	case !proto.Equal(ToProto(c), Introduction(c)):
		return nil, errors.New("says more than the name, labels, gateways and trust of a cluster")
	}
	return c, nil
}
