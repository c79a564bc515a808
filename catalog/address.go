package catalog

import (
	"errors"
	"fmt"
	"net/netip"
)

// nat64 is the prefix of IPv4 addresses in an IPv6 network; the address is in the last four bytes
// (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// CheckAddress refuses an address that no instance can have: it names no host, several hosts, or
// a host that only neighbours on the same link reach. It does not allocate if it accepts the
// address.
func CheckAddress(a netip.AddrPort) error {
	ip := plain(a.Addr())
	switch {
	case !ip.IsValid():
		return errors.New("there is no address; write the IP and the port that other hosts reach, such as 10.0.0.5:50002")
	case ip.IsUnspecified() || ip.Is4() && ip.As4()[0] == 0:
		return fmt.Errorf("address %s names no host; write the IP that other hosts reach", a)
	case ip.IsMulticast() || ip == broadcast:
		return fmt.Errorf("address %s is multicast or broadcast, so it is that of no single host; write the host's own IP", a)
	case ip.IsLinkLocalUnicast():
		return fmt.Errorf("address %s is link-local: only hosts on the same link reach it, and metadata services of clouds are there; "+
			"write the IP that other hosts reach", a)
	case a.Addr().Zone() != "":
		return fmt.Errorf("address %s has a zone, which other hosts can't use; write the IP that they reach", a)
	case a.Port() == 0:
		return fmt.Errorf("address %s has no port that can be called; write that of the sidecar's internal gRPC server", a)
	}
	return nil
}

// LoopbackAddress tells whether an IP address is loopback, in any form.
func LoopbackAddress(ip netip.Addr) bool { return plain(ip).IsLoopback() }

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// plain returns the IPv4 address in an IPv6 address, or else the address itself.
func plain(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if ip.Is6() && nat64.Contains(ip.WithZone("")) {
		all := ip.As16()
		return netip.AddrFrom4([4]byte(all[12:]))
	}
	return ip
}
