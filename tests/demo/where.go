package demo

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// dnsPort is that of the service where isthmus.yaml names none.
const dnsPort = 7453

// dnsAddress is where west answers DNS: at the usual port, if nobody has it.
func dnsAddress() (string, error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(dnsPort))
	if conn, err := net.ListenPacket("udp", address); err == nil {
		conn.Close()
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address, nil
		}
	}
	port, err := sandbox.FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// listenDNS has DNS answered as checkout may see it: on this machine all apps have one
// address, so that it does not tell who asks.
func listenDNS(address string) map[string]any {
	return map[string]any{"dns": map[string]any{"address": address, "as": shop("checkout").String()}}
}

// dig asks DNS where orders is, for checkout, and holds it to the cluster.
func (w *world) dig(ctx context.Context, p *printer) error {
	name := "orders.shop." + catalog.DefaultDomain
	host, port, err := net.SplitHostPort(w.dns)
	if err != nil {
		return err
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, w.dns)
	}}
	p.say("  whatever only speaks DNS asks like this:")
	p.command(fmt.Sprintf("dig +short -p %s @%s %s", port, host, name))
	addresses, err := resolver.LookupHost(ctx, name+".")
	if err != nil {
		return err
	}
	p.output(strings.Join(addresses, "\n"))
	p.command(fmt.Sprintf("dig +short -p %s @%s _dapr._tcp.%s SRV", port, host, name))
	_, services, err := resolver.LookupSRV(ctx, "dapr", "tcp", name+".")
	if err != nil {
		return err
	}
	for _, s := range services {
		p.output(fmt.Sprintf("%d %d %d %s", s.Priority, s.Weight, s.Port, s.Target))
	}
	if !slices.ContainsFunc(services, func(s *net.SRV) bool { return strings.HasSuffix(s.Target, ".west."+catalog.DefaultDomain+".") }) {
		return fmt.Errorf("DNS does not name an instance in west: %v", services)
	}
	return nil
}
