package crd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// refine adds to a field or a message, by its name in the protobuf package, what a
// descriptor can't know. The bounds come from package catalog and package api, which
// hold every object to them; the words are theirs, too.
func refine() map[string]func(*schema) {
	all := objectRules()
	maps.Copy(all, instanceRules())
	maps.Copy(all, actorRules())
	maps.Copy(all, guestRules())
	maps.Copy(all, introductionRules())
	return all
}

func objectRules() map[string]func(*schema) {
	return map[string]func(*schema){
		"AppEndpoints": func(s *schema) {
			s.Required = []string{"spec"}
			s.Rules = []rule{nameRule("an app-id", catalog.CheckHostAppID).or(defaultNames), {
				Rule:       "!has(self.spec.endpoints) || self.spec.endpoints.all(e, has(e.namespace) || e.app != self.metadata.name)",
				Message:    "spec.endpoints has the app itself, which always resolves to its own instance; leave this endpoint out",
				Expression: "'spec.endpoints: is ' + self.metadata.name + ' itself, which always resolves to its own instance; leave this endpoint out'",
			}}
		},
		"AppExport": func(s *schema) {
			s.Required = []string{"spec"}
			s.Rules = []rule{nameRule("an app-id", catalog.CheckHostAppID)}
		},
		"Cluster": func(s *schema) {
			s.Required = []string{"spec"}
			s.Rules = []rule{nameRule("a cluster's name", catalog.CheckCluster), {
				Rule:       fmt.Sprintf("!(self.metadata.name in %s)", quoted(reserved())),
				Message:    "the cluster's name is reserved; choose another",
				Expression: `'metadata.name: cluster name "' + self.metadata.name + '" is reserved; choose another'`,
			}}
		},
		"AppEndpointsSpec.endpoints": func(s *schema) { list(s, catalog.MaxEndpoints) },
		"Endpoint":                   func(s *schema) { s.Required = []string{"app"}; keepNull(s) },
		"Endpoint.app":               appID,
		"Endpoint.namespace":         func(s *schema) { name(s, catalog.CheckNamespace) },
		"Endpoint.whenStale":         func(s *schema) { s.Enum = []string{catalog.Withdraw.String(), catalog.Serve.String()} },
		"Endpoint.locality":          func(s *schema) { s.Enum = []string{catalog.NoLocality.String(), catalog.PreferZone.String()} },
		"Endpoint.as":                appID,
		"Hash": func(s *schema) {
			keepNull(s)
			s.MinFields, s.MaxFields = number(1), number(1)
		},
		"Hash.header": func(s *schema) {
			s.Pattern, s.MinLength, s.MaxLength = "^[-_.a-zA-Z0-9]+$", number(1), number(catalog.MaxHeader)
		},
		"Hash.source": func(s *schema) { s.Enum = []string{catalog.HashSource} },
		"Endpoint.routes": func(s *schema) {
			list(s, catalog.MaxRoutes)
			s.ListType, s.ListMapKeys = "map", []string{"cluster"}
			// Every route with weight 0. In CEL it would cost more than an API server allows for
			// so many endpoints.
			idle := &schema{Required: []string{"weight"}, Properties: map[string]*schema{"weight": {Maximum: number(0)}}}
			s.Not = &schema{MinItems: number(1), Items: idle}
		},
		"Route": func(s *schema) {
			s.Required = []string{"cluster"}
			keepNull(s)
			// A percentage, which is no number from 1 on, of the instances of a version.
			s.Not = &schema{Required: []string{"minReady", "versions"}, Properties: map[string]*schema{"minReady": {Pattern: "%$", Maximum: number(0)}, "versions": {MinItems: number(1)}}}
		},
		"Route.versions": func(s *schema) {
			list(s, catalog.MaxVersions)
			s.Items.Pattern, s.Items.MinLength, s.Items.MaxLength = "^[-._+*?a-zA-Z0-9]+$", number(1), number(catalog.MaxVersion)
		},
		"Route.cluster": func(s *schema) {
			name(s, catalog.CheckCluster)
			s.Not = &schema{Enum: without(reserved(), catalog.LocalCluster)}
		},
		"Route.priority": func(s *schema) { s.Maximum = number(catalog.MaxPriority) },
		"Route.weight":   func(s *schema) { s.Maximum = number(catalog.MaxWeight) },
		"Route.minReady": func(s *schema) {
			s.Type, s.IntOrString, s.Minimum, s.Maximum = "", true, number(1), number(catalog.MaxMinReady)
			s.Pattern = fmt.Sprintf("^([1-9][0-9]{0,%d}|%d|([1-9][0-9]?|100)%%)$", len(strconv.Itoa(catalog.MaxMinReady))-2, catalog.MaxMinReady)
		},
		"AppExportSpec.allow": func(s *schema) {
			list(s, api.MaxAllow)
			s.Items.Properties["cluster"].Not = &schema{Enum: without(reserved(), catalog.LocalCluster)}
		},
		"Allow":                     func(s *schema) { keepNull(s); s.MinFields = number(1) },
		"Allow.cluster":             func(s *schema) { pattern(s, catalog.CheckCluster); s.Not = &schema{Enum: reserved()} },
		"Allow.namespace":           func(s *schema) { pattern(s, catalog.CheckNamespace) },
		"Allow.app":                 func(s *schema) { pattern(s, catalog.CheckHostAppID) },
		"ClusterSpec":               clusterSpec,
		"ClusterSpec.gateways":      gateways,
		"ClusterSpec.network":       network,
		"ClusterSpec.networkRanges": networkRanges,
		"ClusterSpec.staleAfter":    func(s *schema) { duration(s, api.MinStaleAfter, api.MaxStaleAfter) },
		"ClusterSpec.rampUp":        func(s *schema) { duration(s, 0, api.MaxRampUp) },
		"ClusterSpec.tunnel":        func(s *schema) { s.Enum = []string{catalog.TunnelAccept, catalog.TunnelDial} },
		"Trust":                     trust,
		"Trust.domain":              trustDomain,
		"Trust.appDomain":           trustDomain,
		"Trust.rotation":            func(s *schema) { s.Enum = []string{catalog.RotationAccept} },
		"Trust.roots":               roots,
		"Gateway":                   gateway,
		"Gateway.address":           address,
		"Gateway.app":               func(s *schema) { name(s, catalog.CheckHostAppID) },
		"Gateway.namespace":         func(s *schema) { name(s, catalog.CheckNamespace) },
		"AppEndpointsSpec":          keepNull,
		"AppExportSpec":             keepNull,
	}
}

// label is RFC 1123, 2.1, in lower case.
const label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"

// longest is the longest name that a check lets through.
func longest(check func(string) error) int {
	n := 0
	for check(strings.Repeat("a", n+1)) == nil {
		n++
	}
	return n
}

// reserved are the names of clusters that stand for something else.
func reserved() []string {
	var words []string
	for _, word := range []string{catalog.LocalCluster, "cli"} {
		if catalog.CheckCluster(word) != nil {
			words = append(words, word)
		}
	}
	return words
}

func without(words []string, word string) []string {
	var rest []string
	for _, w := range words {
		if w != word {
			rest = append(rest, w)
		}
	}
	return rest
}

func quoted(words []string) string { return "['" + strings.Join(words, "', '") + "']" }

func name(s *schema, check func(string) error) {
	s.Pattern, s.MinLength, s.MaxLength = "^"+label+"$", number(1), number(longest(check))
}

// appID is that of any app, which other clusters may be unable to call.
func appID(s *schema) {
	s.Pattern, s.MinLength, s.MaxLength = "^[-_a-zA-Z0-9]+$", number(1), number(longest(catalog.CheckAppID))
}

// pattern is a name, or "*" for any.
func pattern(s *schema, check func(string) error) {
	s.Pattern, s.MinLength, s.MaxLength = "^([*]|"+label+")$", number(1), number(longest(check))
}

func list(s *schema, most int) { s.MaxItems = number(most) }

// keepNull keeps fields that are there with no value, so that the resolver service refuses
// them, as everywhere: the API server would drop them in silence, and a template that was
// given nothing would allow anybody. Its own rules can't see them. "kubectl apply" drops
// them before anybody sees them; docs/reference/stores/kubernetes.md warns of it.
func keepNull(s *schema) {
	for name, field := range s.Properties {
		if !slices.Contains(s.Required, name) {
			field.Nullable = true
		}
	}
}

// nameRule is for metadata.name, of which a schema can say nothing else.
func nameRule(what string, check func(string) error) rule {
	return rule{
		Rule: fmt.Sprintf("self.metadata.name.matches('^%s$') && self.metadata.name.size() <= %d", label, longest(check)),
		Message: fmt.Sprintf("metadata.name: %s has lower-case letters, digits and hyphens only, no hyphen at either end, and at most %d characters; choose another",
			what, longest(check)),
	}
}

// defaultNames are those of AppEndpoints that apps without one of their own follow.
var defaultNames = fmt.Sprintf("self.metadata.name == '%s' || self.metadata.name == '%s'", catalog.KubernetesDefault, catalog.KubernetesClusterDefault)

// or has the rule hold, too, where another does.
func (r rule) or(other string) rule {
	r.Rule = "(" + r.Rule + ") || " + other
	return r
}

func clusterSpec(s *schema) {
	keepNull(s)
	s.Rules = append(s.Rules, rule{
		Rule:    "!has(self.networkRanges) || self.networkRanges.size() == 0 || has(self.network)",
		Message: "networkRanges says where instances are on a shared network, and there is no network; write the network's name beside it, or leave it out",
	}, rule{
		Rule:    "!has(self.tunnel) || (self.tunnel == 'accept') == (!has(self.gateways) || self.gateways.size() == 0)",
		Message: "a cluster with tunnel: accept has no gateways, since it dials this one, and one with tunnel: dial is dialled at its gateways",
	}, rule{
		Rule:    "!has(self.guest) || has(self.tunnel) && self.tunnel == 'accept' && !has(self.network)",
		Message: "a guest dials this cluster, and is reached through its tunnel alone; write tunnel: accept, and leave network out",
	}, rule{
		Rule:    "!has(self.introduceTo) || !has(self.tunnel) && has(self.gateways) && self.gateways.size() > 0",
		Message: "introduceTo is for a cluster that others can reach at its gateways, as this one does; write its gateways, and no tunnel, or leave introduceTo out",
	}, rule{
		Rule:    "!has(self.introduceTo) || !has(self.trust) || !has(self.trust.roots) || self.trust.roots == '' || has(self.trust.domain) && self.trust.domain != ''",
		Message: "introduceTo is for a cluster with a trust domain, since nobody takes roots from another that would count for all; write spec.trust.domain beside its roots, or leave introduceTo out",
	}, rule{
		Rule:    "!has(self.introduces) || !has(self.guest)",
		Message: "introduces is not for a guest, which gets calls and says nothing of other clusters; leave it out, or guest",
	})
}

func networkRanges(s *schema) {
	list(s, api.MaxRanges)
	s.Items.MinLength, s.Items.MaxLength = number(1), number(len("0000:0000:0000:0000:0000:0000:0000:0000/128"))
	s.Items.Rules = []rule{{
		Rule:    "isCIDR(self) && cidr(self) == cidr(self).masked()",
		Message: "is no range of IP addresses, or has bits set after its length; write one such as 10.2.0.0/16",
	}}
}

func gateways(s *schema) {
	list(s, api.MaxGateways)
	s.ListType, s.ListMapKeys = "map", []string{"address"}
	s.Rules = []rule{{
		Rule:    fmt.Sprintf("self.all(a, !self.exists(b, b.address == a.address + ':%d'))", catalog.DefaultGatewayPort),
		Message: fmt.Sprintf("a gateway is there twice, with the port %d and without, which is the same; keep one of them", catalog.DefaultGatewayPort),
	}, {
		Rule:    "self.size() == 0 || self.exists(g, !has(g.app))",
		Message: "are for single apps alone, and nothing would be heard from the cluster; list a gateway for all apps too, through which its resolver service is reached",
	}}
}

func network(s *schema) {
	s.Pattern, s.MinLength, s.MaxLength = "^[A-Za-z0-9][A-Za-z0-9._/-]*$", number(1), number(api.MaxNetwork)
}

// duration is a length of time as Go writes it, from min to max.
func duration(s *schema, min, max time.Duration) {
	s.Pattern = `^[+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	if min == 0 {
		s.Pattern = `^([+]?0|` + s.Pattern[1:len(s.Pattern)-1] + `)$`
	}
	s.MinLength, s.MaxLength = number(1), number(64)
	s.Rules = []rule{{
		Rule:    fmt.Sprintf("duration(self) >= duration('%s') && duration(self) <= duration('%s')", min, max),
		Message: fmt.Sprintf("is out of bounds; write one from %s to %s", min, max),
	}}
}

func trust(s *schema) {
	keepNull(s)
	s.MinFields = number(1)
	s.Rules = []rule{{
		Rule:    "!has(self.rotation) || has(self.roots)",
		Message: "has a rotation and no roots, which it would change; write the roots beside it, or leave it out",
	}}
}

func trustDomain(s *schema) {
	s.Pattern, s.MinLength, s.MaxLength = "^[a-z0-9._-]+$", number(1), number(api.MaxTrustDomain)
}

// roots are looked at here as far as rules can; the resolver service reads each
// certificate, and refuses the object by a condition.
func roots(s *schema) {
	s.MinLength, s.MaxLength = number(1), number(api.MaxRootsBytes)
	const parts = "self.split('%s').size()"
	begins, ends := fmt.Sprintf(parts, "-----BEGIN CERTIFICATE-----"), fmt.Sprintf(parts, "-----END CERTIFICATE-----")
	s.Rules = []rule{{
		Rule:    "!self.contains('PRIVATE KEY')",
		Message: "has a private key in it, which everybody who can read the config store could use; take it out, replace the key where it came from, and write certificates only",
	}, {
		Rule:    begins + " > 1",
		Message: "has no certificate in it; write one or more blocks from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----",
	}, {
		Rule:    begins + " == " + ends + " && " + begins + " == " + fmt.Sprintf(parts, "-----BEGIN "),
		Message: "has a block that is cut off or is no certificate; write whole blocks of type CERTIFICATE only",
	}, {
		Rule:    fmt.Sprintf("%s <= %d", begins, api.MaxRoots+1),
		Message: fmt.Sprintf("has too many certificates; at most %d are taken", api.MaxRoots),
	}}
}
