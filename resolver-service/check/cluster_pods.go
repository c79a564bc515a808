package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/resolver-service/check/corefile"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/networkpolicy"
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

// way is a connection that has to be possible.
type way struct {
	from, to string // for people
	name     string // of the subject
	kind     string
	a, b     *networkpolicy.End
	port     networkpolicy.Port
}

// Ports in pods.
const (
	resolverPort   = 7400
	defaultGateway = 15443
	internalPort   = 50002
)

// networkPolicies finds connections that NetworkPolicies keep from being made.
func networkPolicies(c *Cluster) (all []Result) {
	if c.unreadable("networkpolicies") {
		return nil
	}
	seen := map[string]bool{}
	for _, w := range c.ways() {
		names := networkpolicy.Blocking(c.Policies, w.a, w.b, w.port)
		key := fmt.Sprint(w.from, w.to, w.name, w.port, names)
		if names == nil || seen[key] {
			continue
		}
		seen[key] = true
		all = append(all, Result{Level: Fail, Kind: w.kind, Name: w.name,
			Found: fmt.Sprintf("NetworkPolicy %s keeps %s from %s, port %d", strings.Join(names, ", "), w.from, w.to, w.port.Number),
			Fix:   "let it through in one of these, or in another policy that selects the pod"})
	}
	return all
}

// ways are the connections that Isthmus needs.
func (c *Cluster) ways() (all []way) {
	var services, resolvers []*snapshot.Pod
	for i := range c.Pods {
		p := &c.Pods[i]
		switch {
		case p.Metadata.Namespace == c.Namespace && p.Metadata.Labels["app.kubernetes.io/name"] == snapshot.Name:
			services = append(services, p)
		case p.Metadata.Labels["k8s-app"] == "kube-dns":
			resolvers = append(resolvers, p)
		}
	}
	gateways := c.peerGateways()
	for _, s := range services {
		end, ports := s.End(c.Namespaces), s.End(nil).Ports
		gateway := networkpolicy.Port{Protocol: "TCP", Number: or(ports["gateway"], defaultGateway)}
		name := s.Metadata.Namespace + "/" + snapshot.Name
		all = append(all, way{"other clusters", "the gateway", name, ofDeployment, &networkpolicy.End{}, end, gateway})
		for _, d := range resolvers {
			if port := or(ports["dns"], 0); port != 0 && c.App.ID == "" {
				all = append(all, way{"CoreDNS", "the DNS of Isthmus", name, ofDeployment, d.End(c.Namespaces), end, networkpolicy.Port{Protocol: "UDP", Number: port}})
			}
		}
		for _, g := range gateways {
			all = append(all, way{"the service", "the gateway of " + g.cluster, name, ofDeployment, end, g.End, networkpolicy.Port{Protocol: "TCP", Number: g.port}})
		}
		c.daprPods(func(p *snapshot.Pod, ours bool) {
			sidecar := p.Sidecar()
			if sidecar == nil {
				return
			}
			app, id := p.End(c.Namespaces), p.Metadata.Namespace+"/"
			appID, _ := p.App()
			id += appID
			all = append(all, way{"the gateway", "its sidecar", id, ofApp, end, app, networkpolicy.Port{Protocol: "TCP", Number: internal(sidecar)}})
			if !ours {
				return
			}
			all = append(all, way{"it", "the resolver service", id, ofApp, app, end, networkpolicy.Port{Protocol: "TCP", Number: or(ports["resolver"], resolverPort)}})
			for _, g := range gateways {
				all = append(all, way{"it", "the gateway of " + g.cluster, id, ofApp, app, g.End, networkpolicy.Port{Protocol: "TCP", Number: g.port}})
			}
		})
	}
	return all
}

func or(n, otherwise int) int {
	if n != 0 {
		return n
	}
	return otherwise
}

// internal is the port on which a sidecar takes calls of others.
func internal(s *snapshot.Container) int {
	var n int
	if _, err := fmt.Sscan(s.Arg("--dapr-internal-grpc-port"), &n); err == nil {
		return n
	}
	return internalPort
}

// peerGateway is a gateway of another cluster, as policies see it.
type peerGateway struct {
	*networkpolicy.End
	cluster string
	port    int
}

func (c *Cluster) peerGateways() (all []peerGateway) {
	for _, p := range c.Status.GetPeers() {
		if c.Peer != "" && c.Peer != p.GetCluster() {
			continue
		}
		for _, g := range p.GetGateways() {
			host, port, ok := strings.Cut(g.GetAddress(), ":")
			if a, err := netip.ParseAddrPort(g.GetAddress()); err == nil {
				all = append(all, peerGateway{&networkpolicy.End{Addresses: []netip.Addr{a.Addr()}}, p.GetCluster(), int(a.Port())})
			} else if n := 0; ok && host != "" {
				if _, err := fmt.Sscan(port, &n); err == nil { // whatever address the name has
					all = append(all, peerGateway{&networkpolicy.End{}, p.GetCluster(), n})
				}
			}
		}
	}
	return all
}

// dnsBlock is the server block of CoreDNS that has the zone; ok is false where DNS is not used, or
// CoreDNS is not known.
func (c *Cluster) dnsBlock() (blocks []corefile.Block, ok bool, err error) {
	text, there := c.CoreDNS["Corefile"]
	if !there || c.service(snapshot.DNS) == nil {
		return nil, false, nil
	}
	all, err := corefile.Parse(text, c.CoreDNS)
	return corefile.For(all, c.settings.Domain, 53), true, err
}

func (c *Cluster) service(name string) *snapshot.Service {
	for i := range c.Services {
		if c.Services[i].Metadata.Name == name {
			return &c.Services[i]
		}
	}
	return nil
}

// forwarded tells whether a block sends the zone to Isthmus.
func (c *Cluster) forwarded(b *corefile.Block) bool {
	own := []string{c.service(snapshot.DNS).Spec.ClusterIP}
	for _, p := range c.selected(c.service(snapshot.DNS)) {
		for _, ip := range p.Status.IPs {
			own = append(own, ip.IP)
		}
	}
	return slices.ContainsFunc(b.Forwards(c.settings.Domain), func(to string) bool {
		to = strings.TrimPrefix(to, "dns://")
		if a, err := netip.ParseAddrPort(to); err == nil {
			to = a.Addr().String()
		}
		return slices.Contains(own, to)
	})
}

// dnsZone finds a CoreDNS that does not ask Isthmus for its zone.
func dnsZone(c *Cluster) []Result {
	blocks, used, err := c.dnsBlock()
	const fix = "give CoreDNS the block of docs/how-to/dns-on-kubernetes.md, or set dns.enabled=false in the values of the chart if only sidecars with Isthmus resolve names"
	switch {
	case !used:
		return nil
	case err != nil:
		return c.fault(Warn, fmt.Sprintf("the Corefile of CoreDNS can't be read: %v", err), "correct the ConfigMap kube-system/coredns")
	}
	for i := range blocks {
		if c.forwarded(&blocks[i]) {
			return nil
		}
	}
	found := fmt.Sprintf("CoreDNS does not forward %s to the Service %s: pods can't resolve names there", c.settings.Domain, snapshot.DNS)
	if len(blocks) > 0 && len(blocks[0].Forwards(c.settings.Domain)) > 0 {
		found += "; it asks " + strings.Join(blocks[0].Forwards(c.settings.Domain), ", ")
	}
	return c.fault(Warn, found, fix)
}

// dnsClientSubnet finds a CoreDNS that does not say, or mixes up, who asks.
func dnsClientSubnet(c *Cluster) []Result {
	blocks, used, err := c.dnsBlock()
	if !used || err != nil || len(c.settings.DNS.Forwarders) == 0 {
		return nil
	}
	for i := range blocks {
		b := &blocks[i]
		switch {
		case !c.forwarded(b):
		case !b.Has("rewrite", "edns0", "subnet", "set"):
			return c.fault(Warn, "CoreDNS forwards "+c.settings.Domain+" without the client's subnet: pods see names of gateways only, and not their app's view", "write rewrite edns0 subnet set 32 128 into its block")
		case b.Has("cache"):
			return c.fault(Warn, "CoreDNS caches "+c.settings.Domain+": one app may get another app's answer", "take cache out of its block")
		}
	}
	return nil
}
