// Package hostcheck refuses HTTP requests whose Host header names a host that the service
// doesn't know. A web page can have its own host name resolve to the service's address (DNS
// rebinding), and then a browser sends it what only the local machine should see. The Host
// header still has that page's name.
package hostcheck

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/throttle"
)

// Hosts are names that requests may have. IP addresses, localhost and names of Kubernetes
// services, which nobody outside can have resolved, are always among them.
type Hosts struct {
	// Names are further host names, without a port.
	Names []string
	// Key is the configuration key with the names, to be told to whoever is refused.
	Key string
	// Domain is the cluster domain of Kubernetes; empty: cluster.local.
	Domain string
	// Log has a line for a refusal; nil: none.
	Log *throttle.Log
}

// Check tells what is wrong with a name that is configured.
func Check(name string) error {
	if name == "" || strings.ContainsAny(name, ":/ *") {
		return fmt.Errorf("%q is no host name", name)
	}
	return nil
}

// Handler answers 421 to requests with another host, and has next answer the rest.
func (h Hosts) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.allows(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		if h.Log != nil {
			h.Log.Warn("host", "refused a request for a host that is not known here", "host", short(r.Host), "remote", r.RemoteAddr, "key", h.Key)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusMisdirectedRequest)
		fmt.Fprintf(w, "host %q is not known here; use the IP address or localhost, or add the name to %s in isthmus.yaml\n", short(r.Host), h.Key)
	})
}

// short is a text from outside, cut to what a host name may have.
func short(s string) string { return s[:min(len(s), 253)] }

func (h Hosts) allows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "" {
		return true // HTTP/1.0 may have none, and browsers always have one
	}
	domain := h.Domain
	if domain == "" {
		domain = "cluster.local"
	}
	for _, suffix := range []string{".localhost", ".svc", ".svc." + domain, ".pod." + domain} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return host == "localhost" || slices.ContainsFunc(h.Names, func(n string) bool { return strings.EqualFold(strings.TrimSuffix(n, "."), host) })
}
