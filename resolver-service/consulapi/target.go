package consulapi

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/probe"
)

// same tells whether an address is known to be of the machine that a request came from: it
// is where the request came from, or both are this machine's.
func (r *registry) same(a, sender netip.Addr) bool {
	a, sender = a.Unmap(), sender.Unmap()
	return a == sender || r.here(sender) && r.here(a)
}

// checkSender refuses a service at another address than its sender's, unless a delegate speaks for
// it and no other app has registered that address itself. On one machine addresses don't tell apps
// apart, so there the later of two registrations counts; but no service takes the address of
// another app's open stream.
func (r *registry) checkSender(ctx context.Context, app catalog.App, address netip.AddrPort, sender netip.Addr) (unverified bool, err error) {
	unverified = !r.same(address.Addr(), sender)
	refuse := func(line, why string, args ...any) error {
		r.often.Warn(line+" "+app.String(), "refused a registration: "+line,
			append([]any{"app", app.String(), "address", address.String(), "from", sender.String()}, args...)...)
		return &apiError{403, fmt.Sprintf("Permission denied: %s can't register %s from %s: %s", app, address, sender, why)}
	}
	if unverified && !r.delegates.Allow(app, sender, address.Addr()) {
		return false, refuse("its address is not the sender's", "a service is registered from its own IP; leave Address out or register from there, "+
			"or, if a NAT or a proxy is between, list that network and the app in instances.delegates of the resolver service")
	}
	holder, err := r.holder(ctx, address)
	switch {
	case err != nil || holder.App == (catalog.App{}) || holder.App == app:
	case unverified || holder.Source == r.streams:
		err = refuse("another app has registered that address itself", "another app's sidecar has registered that address itself; correct the address, or come back once that sidecar has gone",
			"holder", holder.App.String())
	}
	return unverified, err
}

// target is the host and the port that a check asks; both are empty for one that asks nobody.
func (f *checkFields) target() (host, port string, err error) {
	switch f.kind() {
	case "http":
		u, err := url.Parse(f.HTTP)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "", "", &apiError{400, "Invalid check: " + quoted(f.HTTP) + " is no URL with http or https"}
		}
		return u.Hostname(), cmp.Or(u.Port(), u.Scheme), nil
	case "tcp":
		host, port = hostAndPort(f.TCP)
	case "grpc":
		target, _, _ := strings.Cut(f.GRPC, "/")
		host, port = hostAndPort(target)
	}
	return host, port, nil
}

// onlyAsks tells whether a check by HTTP changes nothing where it asks.
func (f *checkFields) onlyAsks() bool {
	return f.Body == "" && (f.Method == "" || f.Method == http.MethodGet || f.Method == http.MethodHead)
}

// plain tells whether a check by HTTP asks nothing but what a sidecar answers: Dapr's health
// endpoints or the root, without headers.
func (f *checkFields) plain() bool {
	u, err := url.Parse(f.HTTP)
	if err != nil || u.User != nil || len(f.Header) > 0 {
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

// checkTarget holds a check to its own instance: whoever registers one could otherwise have
// this machine ask any other. It may ask the machine that registers it, and the service's
// address, which may be another one of that machine. Since anybody's address can be written
// there, such a check asks a plain question, and is discreet.
func (r *registry) checkTarget(app catalog.App, f *checkFields, address string, sender netip.Addr) error {
	host, port, err := f.target()
	if err != nil || host == "" {
		return err
	}
	if r.discreet(f, sender) {
		ip, err := netip.ParseAddr(host)
		ip = ip.Unmap()
		switch {
		case err != nil || host != address || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified():
			return &apiError{400, "Invalid check: it asks " + quoted(host) + ", and a check here may ask the service's own address or that which registers it, neither loopback from another machine nor link-local"}
		case f.kind() == "http" && !f.onlyAsks():
			return &apiError{400, "Invalid check: it sends a body, or another method than GET or HEAD, to " + quoted(host) + ", which is not known to be the machine that registers it; leave them out, or register from that address"}
		case f.kind() == "http" && !f.plain():
			return &apiError{400, "Invalid check: " + quoted(host) + " is not known to be the machine that registers it, so a check may only ask it for /, /v1.0/healthz or /v1.0/healthz/outbound, without headers; ask for one of these, or register from that address"}
		}
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil || port == "" {
		return nil // it fails each time, as in Consul
	}
	s := r.subject(app, f, sender)
	if err := r.prober.Allowed(s, netip.AddrPortFrom(s.Host, uint16(number))); err != nil {
		return &apiError{400, "Invalid check: " + err.Error()}
	}
	return nil
}

// subject is who a check asks. A name that is not localhost leads nowhere.
func (r *registry) subject(app catalog.App, f *checkFields, sender netip.Addr) probe.Subject {
	host, _, _ := f.target() // it was taken
	ip, err := netip.ParseAddr(host)
	if err != nil && host == "localhost" && sender.IsLoopback() {
		ip = sender
	}
	discreet := r.discreet(f, sender)
	return probe.Subject{App: app, Host: ip.Unmap(), Local: !discreet, Unverified: discreet}
}

// discreet tells whether a check asks an address that is not known to be of the machine
// that registered its service: the answer is none of its business.
func (r *registry) discreet(f *checkFields, sender netip.Addr) bool {
	host, _, err := f.target()
	switch {
	case err != nil:
		return true
	case host == "":
		return false
	case host == "localhost":
		return !sender.IsLoopback() // elsewhere it is the instance that is meant, and here it would be us
	}
	ip, err := netip.ParseAddr(host)
	if ip = ip.Unmap(); err == nil && ip.IsLoopback() {
		return !sender.IsLoopback()
	}
	return err != nil || !r.same(ip, sender)
}

// hostAndPort are those of an address; all of it is the host where there is no port.
func hostAndPort(address string) (host, port string) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		return host, port
	}
	return address, ""
}
