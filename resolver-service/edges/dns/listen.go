package dns

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/keypair"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
)

// Listen says where DNS is answered: by UDP and TCP, or by TLS.
type Listen struct {
	Address   string      // host:port
	As        catalog.App // who everybody is that asks there; zero: nobody in particular
	TLS       bool
	RateLimit transport.RateLimit
	MaxTCP    int          // connections open at once; 0 is the transport's default
	Sockets   int          // for UDP; 0 is the transport's default
	TCP       net.Listener // as in [transport.Config]
}

// Files are a certificate with its intermediates, and its private key, in PEM.
type Files struct{ Cert, Key string }

// Listeners are open, and answer nothing yet.
type Listeners struct {
	all    []listener
	cert   *keypair.Pair // nil where none has TLS
	served atomic.Bool
}

type listener struct {
	Listen
	*transport.Listener
}

// ListenError is about one address.
type ListenError struct {
	Address string
	Err     error
}

// Error begins with the address.
func (e *ListenError) Error() string { return e.Address + ": " + e.Err.Error() }

// Unwrap is the error of the system.
func (e *ListenError) Unwrap() error { return e.Err }

// Open opens every listener, or none. The error is a [ListenError], or about the files.
func Open(listen []Listen, files Files, log *slog.Logger) (*Listeners, error) {
	ls := &Listeners{}
	for _, l := range listen {
		cfg := transport.Config{Address: l.Address, As: l.As, MaxTCP: l.MaxTCP, Sockets: l.Sockets, RateLimit: l.RateLimit, TCP: l.TCP}
		cfg.OnlyIPv6 = slices.ContainsFunc(listen, l.leavesIPv4)
		if l.TLS {
			if err := ls.certificate(files, log); err != nil {
				ls.Close()
				return nil, err
			}
			cfg.TLS = &tls.Config{GetCertificate: ls.cert.Get, MinVersion: tls.VersionTLS12}
		}
		open, err := transport.Listen(cfg)
		if err != nil {
			ls.Close()
			return nil, &ListenError{l.Address, err}
		}
		ls.all = append(ls.all, listener{l, open})
	}
	return ls, nil
}

// leavesIPv4 tells whether the other listener has a port for IPv4 that this one would take for both.
func (l Listen) leavesIPv4(o Listen) bool {
	host, port, _ := net.SplitHostPort(l.Address)
	other, same, _ := net.SplitHostPort(o.Address)
	ip, err := netip.ParseAddr(other)
	return (host == "" || host == "::") && err == nil && ip.Unmap().Is4() && port == same && port != "0"
}

// certificate reads the files for the first listener that wants them.
func (ls *Listeners) certificate(files Files, log *slog.Logger) error {
	if ls.cert != nil {
		return nil
	}
	cert, err := keypair.Load(identity.DNSCertificate, files.Cert, files.Key, log)
	if err != nil {
		return fmt.Errorf("dns.tls: %w", err)
	}
	ls.cert = cert
	return nil
}

// Close closes the listeners if they were never served: a server that ends closes them.
func (ls *Listeners) Close() {
	if ls == nil || ls.served.Load() {
		return
	}
	for _, l := range ls.all {
		l.Listener.Close()
	}
}

// TCP is the TCP listener of each, by its address as it was given.
func (ls *Listeners) TCP() map[string]net.Listener {
	all := map[string]net.Listener{}
	if ls != nil {
		for _, l := range ls.all {
			all[l.Address] = l.Listener.TCP()
		}
	}
	return all
}

// String is where all of them listen; "off" where there are none.
func (ls *Listeners) String() string {
	if ls == nil || len(ls.all) == 0 {
		return "off"
	}
	all := make([]string, len(ls.all))
	for i, l := range ls.all {
		all[i] = l.Addr().String()
	}
	return strings.Join(all, " ")
}

// Addr is where the i-th listener listens; nil where there are fewer.
func (ls *Listeners) Addr(i int) net.Addr {
	if ls == nil || i >= len(ls.all) {
		return nil
	}
	return ls.all[i].Addr()
}

// protocols are what the listener is asked by.
func (l *listener) protocols() []string {
	if l.TLS {
		return []string{"tls"}
	}
	return []string{"udp", "tcp"}
}

// Protocol is the one that an address could not be listened to by, "udp" or "tcp"; empty
// where that is not known.
func (e *ListenError) Protocol() string {
	var op *net.OpError
	if errors.As(e.Err, &op) && len(op.Net) >= 3 {
		return op.Net[:3]
	}
	return ""
}
