// Package addresses finds the addresses that host:port of a configuration stands for.
package addresses

import (
	"context"
	"net"
	"net/netip"
	"slices"
)

// Most is how many addresses one name stands for at most.
const Most = 16

// Lookup returns the IP addresses of a name.
type Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// System looks names up as this machine does.
func System(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// Of returns what an address stands for, each once: itself if its host is an IP address, else the
// addresses that the name has now, in the order of the answer. None is no error.
func Of(ctx context.Context, lookup Lookup, address string) (all []string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{address}, nil
	}
	ips, err := lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, ip := range ips[:min(len(ips), Most)] {
		if at := net.JoinHostPort(ip.Unmap().String(), port); !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all, nil
}
