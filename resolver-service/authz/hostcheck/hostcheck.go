// Package hostcheck refuses HTTP requests whose Host header names an unknown host. It prevents
// DNS rebinding: a web page resolves its own host name to the service's address, and a browser
// then sends requests that only the local machine may send. The Host header still has that page's
// name.
package hostcheck

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// Hosts are the names that requests may have. They always include IP addresses, localhost and
// names of Kubernetes services, which nobody outside can point at an address.
type Hosts struct {
	// Names are additional host names, without a port.
	Names []string
	// Key is the configuration key of Names, for the error.
	Key string
	// Domain is the cluster domain of Kubernetes; empty means cluster.local.
	Domain string
	// Log gets a line for each refusal; it may be nil.
	Log *throttle.Log
}

// Check checks a configured name.
func Check(name string) error {
	if name == "" || strings.ContainsAny(name, ":/ *") {
		return fmt.Errorf("%q is no host name", name)
	}
	return nil
}

// Handler answers 421 to requests for unknown hosts, and passes the others to next.
func (h Hosts) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.allows(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		if h.Log != nil {
			h.Log.Warn("host", "refused a request for an unknown host", "host", short(r.Host), "remote", r.RemoteAddr, "key", h.Key)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusMisdirectedRequest)
		fmt.Fprintf(w, "host %q is not known here; use the IP address or localhost, or add the name to %s in isthmus.yaml\n", short(r.Host), h.Key)
	})
}

// short cuts a text to the length of a host name.
func short(s string) string { return s[:min(len(s), 253)] }

func (h Hosts) allows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "" {
		return true // browsers always send one; HTTP/1.0 clients may not
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
