package catalog

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// DefaultDomain is the domain of gateway and DNS names.
const DefaultDomain = "isthmus.internal"

// DefaultGatewayPort is the port of a gateway address without one.
const DefaultGatewayPort = 15443

// maxHostName is the longest name in DNS and SNI (RFC 1035, 2.3.4), without the final dot.
const maxHostName = 253

// maxLabel is the longest label of a DNS name (RFC 1035, 2.3.4).
const maxLabel = 63

// partRoom is reserved in every host name for a part's label and its dot.
const partRoom = len("i01234567.")

// daprServiceSuffix is what Dapr appends to an app-id to name its Kubernetes service. The result
// must be a label as well.
const daprServiceSuffix = "-dapr"

// maxAppID is how long an app-id may be.
const maxAppID = 128

// CheckAppID checks that daprd and its certificates can carry an app-id. Such an app is called
// within its own cluster; for more see [CheckHostAppID].
func CheckAppID(id string) error {
	switch {
	case id == "":
		return errors.New("app-id is empty")
	case len(id) > maxAppID:
		return fmt.Errorf("app-id %q… is %d characters long; at most %d are taken", id[:maxAppID], len(id), maxAppID)
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("app-id %q has %q at position %d; daprd's certificates have letters, digits, - and _ there", id, []rune(id[i:])[0], i+1)
		}
	}
	return nil
}

// CheckHostAppID checks that daprd, a DNS label and SNI can carry an app-id, so that other
// clusters can call the app.
func CheckHostAppID(id string) error {
	if err := checkLabel("app-id", id); err != nil {
		return err
	}
	if len(id) > maxLabel-len(daprServiceSuffix) {
		return fmt.Errorf("app-id %q is %d characters long; at most %d fit, since Dapr appends %q",
			id, len(id), maxLabel-len(daprServiceSuffix), daprServiceSuffix)
	}
	return nil
}

// CheckNamespace checks that a namespace can be a DNS label.
func CheckNamespace(ns string) error { return checkLabel("namespace", ns) }

// CheckInstance checks that an instance's own name can be a DNS label, like a name in Kubernetes.
func CheckInstance(name string) error { return checkLabel("instance name", name) }

// The app-id of a cluster's resolver service is serviceName and the cluster's name. That of the
// command line is serviceName and cliName.
const (
	serviceName = "isthmus-"
	cliName     = "cli"
)

// CheckCluster checks that a cluster's name can be a DNS label and a part of its resolver
// service's app-id, and is not reserved. "local" is the caller's own cluster in a route, and
// "cli" is the command line in a certificate.
func CheckCluster(name string) error {
	if name == LocalCluster || name == cliName {
		return fmt.Errorf("cluster name %q is reserved; choose another", name)
	}
	if err := checkLabel("cluster name", name); err != nil {
		return err
	}
	if most := maxLabel - len(daprServiceSuffix) - len(serviceName); len(name) > most {
		return fmt.Errorf("cluster name %q is %d characters long; at most %d fit, since the cluster's resolver service is the app %s<cluster>", name, len(name), most, serviceName)
	}
	return nil
}

// CheckDomain checks that a domain's labels are DNS labels, and leave room for the rest of a host
// name.
func CheckDomain(domain string) error {
	if domain == "" {
		return errors.New("domain is empty; want one such as " + DefaultDomain)
	}
	if len(domain) > maxHostName/2 {
		return fmt.Errorf("domain %q is %d characters long; at most %d leave room for host names", domain, len(domain), maxHostName/2)
	}
	for label := range strings.SplitSeq(domain, ".") {
		if err := checkLabel("a label of domain "+strconv.Quote(domain), label); err != nil {
			return err
		}
	}
	return nil
}

// checkLabel checks a name by RFC 1123, 2.1: lower-case letters, digits and hyphens, with no
// hyphen at either end. Upper case is refused, since it matters to daprd but not to DNS.
func checkLabel(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", what)
	case len(s) > maxLabel:
		return fmt.Errorf("%s %q is %d characters long; a DNS label holds at most %d", what, s, len(s), maxLabel)
	case s[0] == '-' || s[len(s)-1] == '-':
		return fmt.Errorf("%s %q begins or ends with a hyphen, which a DNS label can't", what, s)
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("%s %q has %q at position %d; Isthmus puts it into DNS names, which have lower-case letters, digits and hyphens only", what, s, []rune(s[i:])[0], i+1)
		}
	}
	return nil
}

// Domain is a zone of host names, such as "isthmus.internal".
type Domain string

// Host is the host name of an app in a cluster, which daprd dials and sends as SNI:
// <app>.<namespace>.<cluster>.<domain>.
func (d Domain) Host(a App, cluster string) string {
	return a.ID + "." + a.Namespace + "." + cluster + "." + string(d)
}

// PeerHost is the reserved host name of a cluster's resolver service behind its gateway. No app
// can have it: an app's host name has one more label, and none with an underscore.
func (d Domain) PeerHost(cluster string) string {
	return peerLabel + "." + cluster + "." + string(d)
}

// LinkHost is the reserved host name at which a cluster's resolver service meets one that it has
// invited. It leads there only while an invitation is open.
func (d Domain) LinkHost(cluster string) string {
	return linkLabel + "." + cluster + "." + string(d)
}

// TunnelHost is the reserved host name at which a cluster's gateway takes tunnels.
func (d Domain) TunnelHost(cluster string) string {
	return tunnelLabel + "." + cluster + "." + string(d)
}

const (
	peerLabel   = "_resolver"
	linkLabel   = "_link"
	tunnelLabel = "_tunnel"
)

// CheckProtocol is what "isthmus check" offers a gateway by ALPN. Where no server name arrives with
// it, the gateway says just that.
const CheckProtocol = "isthmus-check"

// IsPeerHost tells whether host is the reserved name of any cluster's resolver service.
func (d Domain) IsPeerHost(host string) bool {
	_, ok := d.reserved(peerLabel, host)
	return ok
}

// IsLinkHost tells whether host is [Domain.LinkHost] of the cluster.
func (d Domain) IsLinkHost(cluster, host string) bool {
	of, ok := d.reserved(linkLabel, host)
	return ok && of == cluster
}

// IsTunnelHost tells whether host is [Domain.TunnelHost] of the cluster.
func (d Domain) IsTunnelHost(cluster, host string) bool {
	of, ok := d.reserved(tunnelLabel, host)
	return ok && of == cluster
}

// reserved is the cluster in a reserved name.
func (d Domain) reserved(label, host string) (cluster string, ok bool) {
	host, ascii := lowerASCII(strings.TrimSuffix(host, "."))
	cluster, below := strings.CutSuffix(host, "."+string(d))
	cluster, reserved := strings.CutPrefix(cluster, label+".")
	return cluster, ascii && below && reserved && CheckCluster(cluster) == nil
}

// CheckHost checks that an app's host name in a cluster fits into DNS and SNI.
func (d Domain) CheckHost(a App, cluster string) error {
	if n := len(d.Host(a, cluster)) + partRoom; n > maxHostName {
		return fmt.Errorf("host name %q with room for the name of an instance is %d characters long; DNS and SNI carry at most %d", d.Host(a, cluster), n, maxHostName)
	}
	return nil
}

// ShardHost is the host name of one shard of an app in a cluster:
// <n>.<app>.<namespace>.<cluster>.<domain>.
func (d Domain) ShardHost(shard int, a App, cluster string) string {
	return strconv.Itoa(shard) + "." + d.Host(a, cluster)
}

// GatewayAddresses returns the addresses, "<host name>:port", of an app in another cluster: one,
// or from 2 shards on one for each, at most MaxShards.
func (d Domain) GatewayAddresses(a App, cluster, port string, shards int) []string {
	address := d.Host(a, cluster) + ":" + port
	if shards < 2 {
		return []string{address}
	}
	addresses := make([]string, min(shards, MaxShards))
	for n := range addresses {
		addresses[n] = strconv.Itoa(n) + "." + address
	}
	return addresses
}

// InstanceHost is the host name of one instance of an app in a cluster:
// i<token>.<app>.<namespace>.<cluster>.<domain>. A gateway leads it to that instance only, even
// if that one is not ready.
func (d Domain) InstanceHost(token uint32, a App, cluster string) string {
	return instanceLabel(token) + "." + d.Host(a, cluster)
}

// IsInstanceLabel tells whether a label is the first of a name by [Domain.InstanceHost].
func IsInstanceLabel(label string) bool {
	part, ok := parsePart(label)
	_, instance := part.Instance()
	return ok && instance
}

func instanceLabel(token uint32) string { return fmt.Sprintf("i%08x", token) }

// InstanceToken names an instance in [Domain.InstanceHost]. It hides the address that it is
// computed from, and is the same in every replica.
func InstanceToken(address string) uint32 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, address) // never fails
	sum := h.Sum64()
	return uint32(sum ^ sum>>32)
}

// InstanceTokens returns the tokens of instances that another cluster calls by name, at most
// MaxShards. It returns none if two would be equal.
func InstanceTokens(addresses []string) []uint32 {
	if len(addresses) == 0 {
		return nil
	}
	tokens := make([]uint32, min(len(addresses), MaxShards))
	for i := range tokens {
		tokens[i] = InstanceToken(addresses[i])
		if slices.Contains(tokens[:i], tokens[i]) {
			return nil
		}
	}
	return tokens
}

// VersionTokens returns the tokens of instances by their versions; see [VersionToken]. It returns none
// if one of them would be another instance's, too.
func VersionTokens(tokens []uint32, versions *Labels) []uint32 {
	if versions == nil {
		return tokens
	}
	all := make([]uint32, len(tokens))
	for i, token := range tokens {
		all[i] = VersionToken(token, versions.At(i))
		if other := slices.Index(tokens, all[i]); other >= 0 && other != i || slices.Contains(all[:i], all[i]) {
			return nil
		}
	}
	return all
}

// Part is the part of an app that a host name is for: all of it, a shard or one instance.
type Part int64

// NoPart is the part of a host name for the whole app.
const NoPart Part = -1

// instancePart plus the token is the part for one instance.
const instancePart Part = 1 << 32

// Shard is the number of a shard.
func (p Part) Shard() (n int, ok bool) { return int(p), p >= 0 && p < instancePart }

// Instance is the token of an instance.
func (p Part) Instance() (token uint32, ok bool) { return uint32(p), p >= instancePart }

// MaxShards bounds an app's shards in one cluster, and so a caller's connections to it there.
const MaxShards = 256

// ParseHost parses the host name of an app of this domain, in any case, with or without a final
// dot. It allocates nothing for a name in lower case. It refuses names of parts, which ParsePart
// accepts.
func (d Domain) ParseHost(host string) (a App, cluster string, ok bool) {
	a, cluster, part, ok := d.ParsePart(host)
	if !ok || part != NoPart {
		return App{}, "", false
	}
	return a, cluster, true
}

// ParsePart is [Domain.ParseHost] for names of apps and of their parts.
func (d Domain) ParsePart(host string) (a App, cluster string, part Part, ok bool) {
	none := func() (App, string, Part, bool) { return App{}, "", NoPart, false }
	host = strings.TrimSuffix(host, ".")
	if len(host) > maxHostName {
		return none()
	}
	host, ok = lowerASCII(host)
	if !ok {
		return none()
	}
	rest, ok := strings.CutSuffix(host, string(d))
	if !ok {
		return none()
	}
	if rest, ok = strings.CutSuffix(rest, "."); !ok {
		return none()
	}
	part = NoPart
	if strings.Count(rest, ".") == 3 {
		var label string
		label, rest, _ = strings.Cut(rest, ".")
		if part, ok = parsePart(label); !ok {
			return none()
		}
	}
	id, rest, ok1 := strings.Cut(rest, ".")
	ns, cluster, ok2 := strings.Cut(rest, ".")
	if !ok1 || !ok2 || id == "" || ns == "" || cluster == "" || strings.Contains(cluster, ".") {
		return none()
	}
	return App{Namespace: ns, ID: id}, cluster, part, true
}

// parsePart parses a part's label: a shard's number below 65536, in canonical form, or an
// instance's token.
func parsePart(label string) (part Part, ok bool) {
	if hex, ok := strings.CutPrefix(label, "i"); ok {
		token, err := strconv.ParseUint(hex, 16, 32)
		return instancePart + Part(token), err == nil && len(hex) == 8 && hex[0] != '+'
	}
	n, err := strconv.ParseUint(label, 10, 16)
	if err != nil || len(label) > 1 && label[0] == '0' || label[0] == '+' {
		return NoPart, false
	}
	return Part(n), true
}

// lowerASCII returns a name in lower case. ok is false if it is not ASCII, as no host name is. By
// Unicode's rules, some other letters would become ASCII.
func lowerASCII(s string) (lower string, ok bool) {
	upper := false
	for i := range len(s) {
		if s[i] >= 0x80 {
			return "", false
		}
		upper = upper || 'A' <= s[i] && s[i] <= 'Z'
	}
	if upper {
		s = strings.ToLower(s)
	}
	return s, true
}

// maxGateway is the longest "host:port" of a gateway.
const maxGateway = maxHostName + len("[]:65535")

// CheckGateway checks a gateway's "host:port" and returns it in canonical form, with
// DefaultGatewayPort if it has no port. The host is an IP or a DNS name.
func CheckGateway(address string) (string, error) {
	if len(address) > maxGateway {
		return "", fmt.Errorf("gateway address is %d characters long; at most %d are taken", len(address), maxGateway)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if ip, ipErr := netip.ParseAddr(strings.Trim(address, "[]")); ipErr == nil {
			return gatewayOf(address, ip, DefaultGatewayPort)
		}
		if strings.Contains(address, ":") {
			return "", fmt.Errorf("gateway address %q: want host:port, such as \"203.0.113.7:%d\"", address, DefaultGatewayPort)
		}
		host, port = address, strconv.Itoa(DefaultGatewayPort)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("gateway address %q: port %q is not a number from 1 to 65535", address, port)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return gatewayOf(address, ip, uint16(n))
	}
	if host == "" || len(host) > maxHostName {
		return "", fmt.Errorf("gateway address %q: host is empty or over %d characters", address, maxHostName)
	}
	lower, ok := lowerASCII(host)
	if !ok {
		return "", fmt.Errorf("gateway address %q: host is not ASCII; write an international name in its xn-- form", address)
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(lower, "."), ".") {
		if err := checkLabel("a label of gateway host "+strconv.Quote(host), label); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// gatewayOf is the address of a gateway with an IP. A zone is refused: it can be any text, and
// has a meaning on one machine only.
func gatewayOf(address string, ip netip.Addr, port uint16) (string, error) {
	if ip.Zone() != "" {
		return "", fmt.Errorf("gateway address %q has a zone, which is a name that one machine alone knows", address)
	}
	return netip.AddrPortFrom(ip, port).String(), nil
}

// CheckAppGateway is [CheckGateway] for an address that leads to one app. It needs a port, since
// its callers dial the port that their own sidecar listens on.
func CheckAppGateway(address string) (string, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", fmt.Errorf("gateway address %q has no port, and callers without a server name dial the one that their own sidecars listen on", address)
	}
	return CheckGateway(address)
}
