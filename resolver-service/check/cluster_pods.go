package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/resolver-service/check/snapshot"
)

// workloads are pods with the same fault, by app.
type workloads map[string][]*snapshot.Pod

func (w workloads) add(p *snapshot.Pod) {
	id, _ := p.App()
	name := p.Metadata.Namespace + "/" + id
	w[name] = append(w[name], p)
}

// results are one for each app.
func (w workloads) results(level Level, found func(*snapshot.Pod) string, fix func(*snapshot.Pod) string) (all []Result) {
	for _, name := range slices.Sorted(maps.Keys(w)) {
		first := w[name][0]
		text := found(first)
		if n := len(w[name]); n > 1 {
			text = fmt.Sprintf("%s (%d pods)", text, n)
		}
		all = append(all, Result{Level: level, Kind: ofApp, Name: name, Found: text, Fix: fix(first)})
	}
	return all
}

func restart(p *snapshot.Pod) string {
	return "restart its workload, such as by kubectl rollout restart deployment -n " + p.Metadata.Namespace
}

// daprPods are the pods of apps that are looked at, with whether they are to have sidecars with Isthmus:
// in the namespaces of sidecars.namespaces, or by a Configuration with Isthmus in it.
func (c *Cluster) daprPods(each func(p *snapshot.Pod, ours bool)) {
	for i := range c.Pods {
		p := &c.Pods[i]
		id, enabled := p.App()
		if !enabled || !c.wanted(p.Metadata.Namespace, id) {
			continue
		}
		each(p, c.HasSidecars(p.Metadata.Namespace) || c.resolvesByIsthmus(p))
	}
}

// configurationOf is the name of the Configuration that a pod's sidecar has.
func configurationOf(p *snapshot.Pod) string {
	if s := p.Sidecar(); s != nil {
		return s.Arg("--config")
	}
	return p.Metadata.Annotations["dapr.io/config"]
}

// resolvesByIsthmus tells whether the Configuration of a pod names Isthmus.
func (c *Cluster) resolvesByIsthmus(p *snapshot.Pod) bool {
	return slices.ContainsFunc(c.Configurations, func(config snapshot.Configuration) bool {
		return config.Metadata.Namespace == p.Metadata.Namespace && config.Metadata.Name == configurationOf(p) && config.Spec.NameResolution.Component == "isthmus"
	})
}

// podsWithoutSidecar finds pods that Dapr's injector has passed by.
func podsWithoutSidecar(c *Cluster) []Result {
	found := workloads{}
	c.daprPods(func(p *snapshot.Pod, ours bool) {
		if ours && p.Sidecar() == nil {
			found.add(p)
		}
	})
	return found.results(Fail, func(*snapshot.Pod) string { return "it has no sidecar, though its annotations ask for one" },
		func(p *snapshot.Pod) string { return "see that Dapr's injector runs, then " + restart(p) })
}

// podsWithStockImage finds sidecars that know nothing of Isthmus.
func podsWithStockImage(c *Cluster) []Result {
	found := workloads{}
	c.daprPods(func(p *snapshot.Pod, ours bool) {
		if s := p.Sidecar(); ours && s != nil && stock(s.Image) {
			found.add(p)
		}
	})
	return found.results(Fail, func(p *snapshot.Pod) string {
		return "its sidecar is " + p.Sidecar().Image + ", which has no Isthmus in it: calls end with \"name resolver not initialized\""
	}, func(p *snapshot.Pod) string {
		if c.HasSidecars(p.Metadata.Namespace) && p.Metadata.Annotations["dapr.io/sidecar-image"] == "" {
			return restart(p) + ": it is older than the policy that gives it the image"
		}
		return "annotate it with dapr.io/sidecar-image, as docs/how-to/install.md says, and restart it"
	})
}

// stock tells whether an image is Dapr's own daprd. Others may well have Isthmus in them.
func stock(image string) bool {
	name, _, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	name, _, _ = strings.Cut(name, "@")
	return name == "daprd" || name == "dapr"
}

// podsWithoutConfiguration finds pods of our namespaces whose Configuration names another resolver.
func podsWithoutConfiguration(c *Cluster) []Result {
	found := workloads{}
	c.daprPods(func(p *snapshot.Pod, ours bool) {
		if ours && p.Sidecar() != nil && !c.resolvesByIsthmus(p) {
			found.add(p)
		}
	})
	if c.unreadable("configurations.dapr.io") {
		return nil
	}
	return found.results(Warn, func(p *snapshot.Pod) string {
		if configurationOf(p) == "" {
			return "its sidecar has no Configuration, so it does not resolve app-ids by Isthmus"
		}
		return "its Configuration " + configurationOf(p) + " does not resolve app-ids by Isthmus"
	}, func(p *snapshot.Pod) string {
		if configurationOf(p) == "" {
			return restart(p) + ": it is older than the policy that gives it the Configuration"
		}
		return "add nameResolution to it, as docs/reference/sidecar.md says, or leave dapr.io/config out of the pod's annotations"
	})
}

// podsThatAreOld finds sidecars of another image than new pods get.
func podsThatAreOld(c *Cluster) []Result {
	found := workloads{}
	c.daprPods(func(p *snapshot.Pod, ours bool) {
		s, wanted := p.Sidecar(), c.SidecarImage
		if s == nil || wanted == "" || !c.HasSidecars(p.Metadata.Namespace) || stock(s.Image) || sameRepository(s.Image, wanted) == "" {
			return
		}
		if s.Image != wanted {
			found.add(p)
		}
	})
	return found.results(Warn, func(p *snapshot.Pod) string {
		return fmt.Sprintf("its sidecar is %s, and new pods get %s", p.Sidecar().Image, c.SidecarImage)
	}, restart)
}

// sameRepository is what two images have in common before tag and digest; empty if they are of
// different repositories, which somebody has chosen.
func sameRepository(a, b string) string {
	repository := func(image string) string {
		image, _, _ = strings.Cut(image, "@")
		if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
			image = image[:i]
		}
		return image
	}
	if repository(a) != repository(b) {
		return ""
	}
	return repository(a)
}
