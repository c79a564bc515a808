package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// lab is three clusters in a network of their own, and those who ask the DNS server of one
// of them, west. What is in the clusters stands in objects_linux_test.go.
type lab struct {
	*network.Network
	dir               string
	west, east, north *cluster
	callers, cart     *network.Place     // cart asks from a place of its own
	ca                string             // file with the root of the certificate for DNS over TLS
	authority         *sandbox.Authority // of the clusters; nil: there are no peers, and no certificates
}

// Addresses. Programs that choose no address ask from the first of their place.
var (
	server   = netip.MustParseAddr("10.77.1.1")
	unbound  = netip.MustParseAddr("10.77.1.53")
	coredns  = netip.MustParseAddr("10.77.1.54")
	caching  = netip.MustParseAddr("10.77.1.55") // a CoreDNS that keeps answers
	checkout = netip.MustParseAddr("10.77.3.11") // has a selection
	follower = netip.MustParseAddr("10.77.3.12") // follows its cluster's default
	sharing  = netip.MustParseAddr("10.77.3.13") // two apps have it
	relay    = netip.MustParseAddr("10.77.3.53") // a listed forwarder
	stranger = netip.MustParseAddr("10.77.3.99")
	cart     = netip.MustParseAddr("10.77.3.21") // has another selection
)

const (
	port        = "7453"
	boundPort   = "7454" // whoever asks there is shop/checkout
	tlsPort     = "853"
	gatewayPort = "15443"
	zone        = "isthmus.internal."
)

// newLab starts the clusters and waits until west's DNS server knows all that they have.
// The lab is to be closed also where an error comes with it.
func newLab(ctx context.Context, dir string) (*lab, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	l := &lab{Network: network.New(1), dir: dir}
	var err error
	if l.authority, err = sandbox.NewAuthority(); err != nil {
		return l, err
	}
	if l.callers, err = l.Place(checkout, follower, sharing, relay, stranger); err != nil {
		return l, err
	}
	if l.cart, err = l.Place(cart); err != nil {
		return l, err
	}
	dns, err := l.settings()
	if err != nil {
		return l, err
	}
	for _, c := range []struct {
		into    **cluster
		name    string
		network string
		number  int
		listen  map[string]any
		more    map[string]any
	}{
		{&l.west, "west", "net-1", 1, listeners(), dns},
		{&l.east, "east", "", 2, nil, nil},
		{&l.north, "north", "net-1", 4, nil, nil},
	} {
		if *c.into, err = newCluster(l, c.name, c.number); err != nil {
			return l, err
		}
		settings := map[string]any{}
		if c.network != "" {
			settings["network"] = c.network
		}
		for key, value := range c.more {
			settings[key] = value
		}
		if err := (*c.into).start(ctx, c.listen, settings); err != nil {
			return l, err
		}
	}
	if err := errors.Join(l.north.apply(ctx, northObjects), l.east.apply(ctx, eastObjects), l.west.apply(ctx, westObjects())); err != nil {
		return l, err
	}
	return l, l.await(ctx)
}

// listeners are west's, one of each kind.
func listeners() map[string]any {
	return map[string]any{"dns": []any{
		"0.0.0.0:" + port,
		server.String() + ":53",
		map[string]any{"address": server.String() + ":" + boundPort, "as": "shop/checkout"},
		map[string]any{"address": server.String() + ":" + tlsPort, "tls": true},
	}}
}

// settings are west's of the DNS server, with a certificate for DNS over TLS.
func (l *lab) settings() (map[string]any, error) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return nil, err
	}
	cert, key, err := authority.Server("ns."+strings.TrimSuffix(zone, "."), server.String())
	if err != nil {
		return nil, err
	}
	path := func(name string) string { return filepath.Join(l.dir, name) }
	for name, text := range map[string][]byte{"dns.crt": cert, "dns.key": key, "dns-ca.crt": authority.Anchors()} {
		if err := os.WriteFile(path(name), text, 0o600); err != nil {
			return nil, err
		}
	}
	l.ca = path("dns-ca.crt")
	return map[string]any{"dns": map[string]any{
		"tls":        map[string]any{"cert": path("dns.crt"), "key": path("dns.key")},
		"kubernetes": "cluster.local",
		"forwarders": []string{relay.String() + "/32", "127.0.0.0/8"},
		"nsid":       "west-1",
		"rateLimit":  map[string]any{"responses": 500},
	}}, nil
}

// await asks until each view has what is in the clusters: what others export, and which
// instances are where, takes west a moment.
func (l *lab) await(ctx context.Context) error {
	for _, known := range []struct {
		from    netip.Addr
		name    string
		kind    string
		records int
	}{
		{checkout, "_dapr._tcp.everywhere.shop.", "SRV", 4}, {checkout, "many.shop.", "A", 120}, {checkout, "orders.shop.", "A", 3},
		{checkout, "stock.shop.", "A", 2}, {checkout, "near.shop.", "A", 1}, {checkout, "v6only.shop.", "AAAA", 1},
		{cart, "orders.shop.", "A", 2}, {follower, "payroll.finance.", "A", 1}, {stranger, "stock.shop.east.", "A", 2},
	} {
		for {
			r, err := l.ask(ctx, known.from, "dig", "+tcp", known.name+zone, known.kind)
			if err == nil && len(r.Answer) == known.records {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("west does not answer %s as it is to: %w\n%v\n%s", known.name, err, r, l.west.Tail(30))
			}
		}
	}
	return nil
}

func (l *lab) close() error {
	var errs []error
	for _, c := range []*cluster{l.west, l.east, l.north} {
		if c != nil {
			errs = append(errs, c.box.Close())
		}
	}
	return errors.Join(append(errs, l.Close(), os.RemoveAll(l.dir))...)
}

// cluster is a cluster in a place of its own.
type cluster struct {
	*sandbox.Cluster
	name      string
	authority *sandbox.Authority
	place     *network.Place
	box       *sandbox.Sandbox
}

func newCluster(l *lab, name string, number int) (*cluster, error) {
	address := func(host int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, byte(number), byte(host)}) }
	place, err := l.Place(address(1), address(11), address(12), address(53), address(54), address(55))
	if err != nil {
		return nil, err
	}
	box, err := sandbox.NewIn(place, filepath.Join(l.dir, name), quiet)
	return &cluster{name: name, authority: l.authority, place: place, box: box}, err
}

// start starts the cluster's service, with its gateway at every address.
func (c *cluster) start(ctx context.Context, listen, settings map[string]any) (err error) {
	c.Cluster, err = c.box.Cluster(ctx, sandbox.ClusterOptions{
		Name: c.name, Authority: c.authority, NoSentry: true, Gateway: "0.0.0.0:" + gatewayPort, Listen: listen, Settings: settings,
	})
	return err
}

// apply writes objects; it returns once lookups in the cluster's service follow them.
func (c *cluster) apply(ctx context.Context, objects string) error {
	args := []string{"apply", "-f", "-"}
	if c.authority == nil {
		args = append(args, "--insecure")
	}
	return c.isthmus(ctx, objects, args...)
}

// isthmus runs the command line against the cluster.
func (c *cluster) isthmus(ctx context.Context, stdin string, args ...string) error {
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), c.CommandLine()...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := output(c.place, cmd); err != nil {
		return fmt.Errorf("isthmus %s in %s: %w\n%s", args[0], c.name, err, out)
	}
	return nil
}

// output runs a command in a place and returns all that it prints.
func output(place *network.Place, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := place.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}
