package peering

import (
	"fmt"
	"strings"
)

// remedies are what to do about errors that leave that open, by a part of their text.
var remedies = []struct{ part, remedy string }{
	{"first record does not look like a TLS handshake", "what listens there is no gateway, or its service has identity: insecure; correct spec.gateways, or give that service an identity"},
	{"tls: unrecognized name", "that gateway has no resolver service, or another domain; correct spec.gateways, or make domain the same in isthmus.yaml of both"},
	{"server preface", "it may want mTLS, and this service has identity: insecure"},
	{"connection refused", "start the gateway there, or correct spec.gateways"},
	{"no such host", "correct spec.gateways"},
	{"lookup ", "correct spec.gateways, or how this machine resolves names"},
	{"network is unreachable", "correct spec.gateways, or the routes of this machine"},
	{"no route to host", "correct spec.gateways, or the routes and firewalls on the way"},
}

// advised is an error with what to do about it.
func advised(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, r := range remedies {
		if strings.Contains(text, r.part) {
			return fmt.Errorf("%w; %s", err, r.remedy)
		}
	}
	return err
}
