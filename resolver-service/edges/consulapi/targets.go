package consulapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// targets decides which addresses a service and its checks may name.
type targets struct {
	rules   *destination.Rules
	prober  *probe.Prober
	portKey string // of the metadata with the port of the sidecar's internal gRPC server
}

// instance is the address where callers' sidecars find a service. It is not valid for a
// service without a port, which nobody can call.
func (t *targets) instance(d *api.AgentServiceRegistration, sender netip.Addr) (netip.AddrPort, error) {
	host := sender
	if d.Address != "" {
		var err error
		if host, err = netip.ParseAddr(d.Address); err != nil || host.Zone() != "" || host.IsUnspecified() {
			return netip.AddrPort{}, badRequest("Invalid service address: Isthmus leads calls to IP addresses, and %s is none", quoted(d.Address))
		}
	}
	port := uint64(d.Port)
	if text, ok := d.Meta[t.portKey]; ok {
		var err error
		if port, err = strconv.ParseUint(text, 10, 16); err != nil || port == 0 {
			return netip.AddrPort{}, badRequest("Invalid Service Meta: %s: %s is no port", t.portKey, quoted(text))
		}
	}
	if port == 0 {
		return netip.AddrPort{}, nil
	}
	address := netip.AddrPortFrom(host.Unmap(), uint16(port))
	if err := t.rules.Instance(address); err != nil {
		return netip.AddrPort{}, badRequest("Invalid service address: %v", err)
	}
	return address, nil
}

// check refuses a check that could have this machine ask any other. A check may ask the
// machine that registers it, and the address of its service. Anybody's address can be written
// there, so such a check asks a plain question and reports no more than a status.
func (t *targets) check(app catalog.App, c *checkSpec, address string, sender netip.Addr) error {
	if c.kind == "ttl" {
		return nil
	}
	subject := t.subject(app, c, sender)
	if subject.Unverified {
		ip := subject.Host
		switch {
		case !ip.IsValid() || c.host != address || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified():
			return badRequest("Invalid check: it asks %s, and a check here may ask the service's own address or that which registers it, neither loopback from another machine nor link-local", quoted(c.host))
		case c.kind == "http" && !c.plain():
			return badRequest("Invalid check: %s is not known to be the machine that registers it, so a check may only GET or HEAD /, /v1.0/healthz or /v1.0/healthz/outbound there, without headers or a body; "+
				"ask for one of these, or register from that address", quoted(c.host))
		}
	}
	number, err := net.LookupPort("tcp", c.port)
	if err != nil || c.port == "" {
		return nil // it fails each time, as in Consul
	}
	if err := t.prober.Allowed(subject, netip.AddrPortFrom(subject.Host, uint16(number))); err != nil {
		return badRequest("Invalid check: %v", err)
	}
	return nil
}

// checkSender refuses a service at another address than its sender's, unless a delegate speaks for
// it and no other app has registered that address itself. On one machine addresses don't tell apps
// apart, so there the later of two registrations counts; but no service takes the address of
// another app's open stream.
func (r *registry) checkSender(ctx context.Context, app catalog.App, address netip.AddrPort, sender netip.Addr) (unverified bool, err error) {
	unverified = !r.targets.rules.OwnAddress(sender, address.Addr())
	if unverified && !r.delegates.Allow(app, sender, address.Addr()) {
		r.often.Warn("sender "+app.String(), "refused a registration: its address is not the sender's",
			"app", app.String(), "address", address.String(), "from", sender.String())
		return false, &apiError{403, fmt.Sprintf("Permission denied: %s can't register %s from %s: a service is registered from its own IP; leave Address out or register from there, "+
			"or, if a NAT or a proxy is between, list that network and the app in instances.delegates of the resolver service", app, address, sender)}
	}
	holder, err := r.holder(ctx, address)
	switch {
	case err != nil || holder.App == (catalog.App{}) || holder.App == app:
	case unverified || holder.Source == r.streams:
		err = &apiError{403, "Permission denied: " + holder.Refuse(r.often, app, address, sender).Error()}
	}
	return unverified, err
}

// subject is the target of a check, for its prober. The host is not valid for a name other than localhost. The
// subject is unverified unless its address belongs to the machine that registered the service.
func (t *targets) subject(app catalog.App, c *checkSpec, sender netip.Addr) probe.Subject {
	ip, err := netip.ParseAddr(c.host)
	ip = ip.Unmap()
	if c.host == "localhost" && sender.IsLoopback() {
		ip, err = sender.Unmap(), nil
	}
	verified := err == nil && (ip.IsLoopback() && sender.IsLoopback() || !ip.IsLoopback() && t.rules.OwnAddress(sender, ip))
	return probe.Subject{App: app, Host: ip, Local: verified, Unverified: !verified}
}

// plain tells whether a check by HTTP asks only what a sidecar answers: Dapr's health endpoints
// or the root, without headers.
func (c *checkSpec) plain() bool {
	u, err := url.Parse(c.HTTP)
	if err != nil || u.User != nil || len(c.Header) > 0 || c.Body != "" {
		return false
	}
	switch c.Method {
	case "", http.MethodGet, http.MethodHead:
	default:
		return false
	}
	switch u.Path {
	case "", "/", "/v1.0/healthz", "/v1.0/healthz/outbound":
	default:
		return false
	}
	query, err := url.ParseQuery(u.RawQuery)
	delete(query, "appid") // Dapr's component asks with it
	return err == nil && len(query) == 0
}
