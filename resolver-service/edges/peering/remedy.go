package peering

import (
	"fmt"
	"strings"
)

// Remedies that several errors share.
const (
	noGatewayRemedy  = "the other end is no gateway; correct spec.gateways"
	hangsUpRemedy    = "the other end closes connections: it is no gateway, or a load balancer without a gateway, or its service has identity: insecure; correct spec.gateways, start the gateway, or give that service an identity"
	mayWantTLSRemedy = "this service has identity: insecure, and clusters connect only with mTLS: give this service and that one an identity; or the other end is no gateway: correct spec.gateways"
	distrustRemedy   = "the other cluster refuses this one's certificate: see its log; it may have no Cluster object for this one, or one that lacks the root of this one, in spec.trust.roots, or a clock that differs from this one's"
)

// remedies say what to do about an error, by a part of its text. The first match counts. If this
// service has identity: insecure, the text in insecure replaces the remedy.
var remedies = []struct{ part, remedy, insecure string }{
	{part: "first record does not look like a TLS handshake", remedy: "the other end is no gateway, or its service has identity: insecure; correct spec.gateways, or give that service an identity"},
	{part: "tls: unrecognized name", remedy: "that gateway has no resolver service, or another domain; correct spec.gateways, or make domain the same in isthmus.yaml of both"},
	{part: "remote error: tls: expired certificate", remedy: "the other cluster refuses this one's certificate: see isthmus trust here, and the clocks of both"},
	{part: "remote error: tls: bad certificate", remedy: distrustRemedy},
	{part: "remote error: tls: unknown certificate", remedy: distrustRemedy},
	{part: "remote error: tls: certificate required", remedy: distrustRemedy},
	{part: "remote error: tls: internal error", remedy: "the gateway there has no table yet, most often since its resolver service has not read its config store: see isthmus status there; or it serves all the connections of peers that it may"},
	{part: "remote error: tls: ", remedy: "see the log of the resolver service there"},
	{
		part: errHungUp.Error(), insecure: mayWantTLSRemedy,
		remedy: "see the log of the resolver service there: it may refuse this one's certificate, since it may have no Cluster object for this one, or one that lacks the root of this one, in spec.trust.roots, or another clock",
	},
	{part: "unknown service isthmus.v1alpha1.Peering", remedy: "the other end is a resolver service, but not its gateway: most often its listen.resolver; write the address of its listen.gateway into spec.gateways"},
	{part: "server preface", remedy: noGatewayRemedy, insecure: mayWantTLSRemedy},
	{part: "not a settings frame", remedy: noGatewayRemedy},
	{part: errNeverHeard.Error(), remedy: "the other end may be no gateway: correct spec.gateways; or packets are lost on the way: check routes and firewalls"},
	{part: "handshake failed: EOF", remedy: hangsUpRemedy},
	{part: "connection reset", remedy: hangsUpRemedy},
	{part: "connection refused", remedy: "start the gateway there, or correct spec.gateways"},
	{part: "no such host", remedy: "correct spec.gateways"},
	{part: "lookup ", remedy: "correct spec.gateways, or how this machine resolves names"},
	{part: "network is unreachable", remedy: "correct spec.gateways, or the routes of this machine"},
	{part: "no route to host", remedy: "correct spec.gateways, or the routes and firewalls on the way"},
}

// withRemedy adds to an error what to do about it. insecure tells whether this service has
// identity: insecure.
func withRemedy(err error, insecure bool) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, r := range remedies {
		if !strings.Contains(text, r.part) {
			continue
		}
		if insecure && r.insecure != "" {
			return fmt.Errorf("%w; %s", err, r.insecure)
		}
		return fmt.Errorf("%w; %s", err, r.remedy)
	}
	return err
}
