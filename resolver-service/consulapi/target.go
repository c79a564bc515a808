package consulapi

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// same tells whether an address is known to be of the machine that a request came from: it
// is where the request came from, or both are this machine's.
func (r *registry) same(a, sender netip.Addr) bool {
	a, sender = a.Unmap(), sender.Unmap()
	return a == sender || r.here(sender) && r.here(a)
}

// target is the host that a check asks; empty for one that asks nobody.
func (f *checkFields) target() (host string, err error) {
	switch f.kind() {
	case "http":
		u, err := url.Parse(f.HTTP)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "", &apiError{400, "Invalid check: " + quoted(f.HTTP) + " is no URL with http or https"}
		}
		return u.Hostname(), nil
	case "tcp":
		return hostOf(f.TCP), nil
	case "grpc":
		target, _, _ := strings.Cut(f.GRPC, "/")
		return hostOf(target), nil
	}
	return "", nil
}

// onlyAsks tells whether a check by HTTP changes nothing where it asks.
func (f *checkFields) onlyAsks() bool {
	return f.Body == "" && (f.Method == "" || f.Method == http.MethodGet || f.Method == http.MethodHead)
}

// checkTarget holds a check to its own instance: who registers one could otherwise have
// this machine ask any other. It may ask the machine that registers it, and the service's
// address, which may be another one of that machine: since anybody's can be written there,
// such a check only asks, and is discreet.
func (r *registry) checkTarget(f *checkFields, address string, sender netip.Addr) error {
	host, err := f.target()
	if err != nil || host == "" {
		return err
	}
	if !r.discreet(f, sender) {
		return nil
	}
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap()
	switch {
	case err != nil || host != address || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified():
		return &apiError{400, "Invalid check: it asks " + quoted(host) + ", and a check here may ask the service's own address or that which registers it, neither loopback from another machine nor link-local"}
	case f.kind() == "http" && !f.onlyAsks():
		return &apiError{400, "Invalid check: it sends a body, or another method than GET or HEAD, to " + quoted(host) + ", which is not known to be the machine that registers it; leave them out, or register from that address"}
	}
	return nil
}

// discreet tells whether a check asks an address that is not known to be of the machine
// that registered its service: the answer is none of its business.
func (r *registry) discreet(f *checkFields, sender netip.Addr) bool {
	host, err := f.target()
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

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
