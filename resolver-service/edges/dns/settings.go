package dns

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/forward"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/zone"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// Endpoint is an address where DNS is answered: by UDP and TCP, or by TLS.
type Endpoint struct {
	Address string `yaml:"address,short"`
	As      string `yaml:"as"`  // the app that everybody is who asks here
	TLS     bool   `yaml:"tls"` // RFC 7858
}

// Settings are the block "dns" of isthmus.yaml. Zero values are the defaults of the parts.
type Settings struct {
	TTL          time.Duration    `yaml:"ttl"`
	GatewayTTL   time.Duration    `yaml:"gatewayTTL"`
	NSID         string           `yaml:"nsid"`
	Kubernetes   string           `yaml:"kubernetes"` // also for the gateway, without a listener for DNS
	Nameserver   []string         `yaml:"nameserver,single"`
	Forwarders   []string         `yaml:"forwarders,single"`
	Forward      []string         `yaml:"forward,single"`
	Cache        *int             `yaml:"cache"`
	TLS          *TLS             `yaml:"tls"`
	CookieSecret *settings.Secret `yaml:"cookieSecret"`
	RateLimit    *RateLimit       `yaml:"rateLimit"`
	MaxTCP       int              `yaml:"maxTCP"`
}

// TLS names the files that the listeners for TLS take, in PEM.
type TLS struct {
	Cert string `yaml:"cert" file:""`
	Key  string `yaml:"key" file:""`
}

// RateLimit bounds identical responses to one client network, by UDP. Where it is not
// there, listeners that are not on loopback have DefaultResponses and DefaultSlip.
type RateLimit struct {
	Responses int  `yaml:"responses"` // a second; 0 for no bound
	Slip      *int `yaml:"slip"`
}

// DefaultAddress is where DNS is answered where isthmus.yaml has no "listen".
const DefaultAddress = "127.0.0.1:7453"

// The rate limit of listeners that are not on loopback.
const (
	DefaultResponses = 20
	DefaultSlip      = 2
)

// check adds to the document what is wrong with listen.dns and dns.
func (e endpoints) check(doc *strict.Document, domain catalog.Domain) {
	e.checkListeners(doc)
	d := e.Settings
	for _, l := range []struct {
		path  string
		value time.Duration
	}{{"dns.ttl", d.TTL}, {"dns.gatewayTTL", d.GatewayTTL}} {
		if doc.Has(l.path) && !doc.Wrong(l.path) && (l.value < time.Second || l.value > time.Hour) {
			doc.Refuse(l.path, fmt.Sprintf("%s is out of bounds", l.value), "write 1s to 1h; views change any time, and an answer of before is used for so long")
		}
	}
	if len(d.NSID) > longestNSID || strings.ContainsFunc(d.NSID, func(r rune) bool { return r < ' ' || r > '~' }) {
		doc.Refuse("dns.nsid", "is no short text in ASCII", fmt.Sprintf("write at most %d characters such as west-1", longestNSID))
	}
	if d.Kubernetes != "" {
		if err := catalog.CheckKubernetes(catalog.Kubernetes(d.Kubernetes), domain); err != nil {
			doc.Refuse("dns.kubernetes", err.Error(), "write the cluster domain of Kubernetes, such as cluster.local")
		}
	}
	e.checkAddresses(doc)
	e.checkSecrets(doc)
	e.checkBounds(doc)
	e.checkIdle(doc)
}

// checkIdle refuses what is said of DNS where nobody listens: somebody thinks that it is on.
func (e endpoints) checkIdle(doc *strict.Document) {
	if doc.Wrong("listen") || len(e.all) > 0 {
		return
	}
	for _, path := range strict.Paths(e.Settings) {
		block, _, _ := strings.Cut(path, ".")
		key := "dns." + block
		if block != "kubernetes" && doc.Has(key) && !doc.Wrong(key) { // that is the gateway's, too
			doc.Refuse(key, "nobody listens for DNS", "write listen: {dns: \""+DefaultAddress+"\"}, beside the other parts that are to run, or leave it out")
		}
	}
}

// longestNSID is what a response has room for.
const longestNSID = 128

func (e endpoints) checkListeners(doc *strict.Document) {
	if doc.Has("listen.dns") && len(e.all) == 0 && !doc.Wrong("listen.dns") {
		doc.Refuse("listen.dns", "names no listener", "write an address such as "+DefaultAddress+", or leave dns out")
	}
	withTLS := false
	for i, l := range e.all {
		path := "listen.dns"
		if item := fmt.Sprintf("listen.dns[%d]", i); doc.Has(item) {
			path = item
		}
		withTLS = withTLS || l.TLS
		switch {
		case doc.Wrong(path):
			continue
		case l.Address == "":
			doc.Refuse(path, "has no address", "write {address: \""+DefaultAddress+"\", …}")
			continue
		}
		at := path
		if doc.Has(path + ".address") {
			at += ".address"
		}
		edge.CheckAddress(doc, at, l.Address, DefaultAddress)
		if !strings.HasSuffix(l.Address, ":0") && slices.ContainsFunc(e.all[:i], func(o Endpoint) bool { return o.Address == l.Address }) {
			doc.Refuse(at, l.Address+" is there twice", "give each listener an address or a port of its own")
		}
		if _, err := catalog.ParseApp(l.As); err != nil && l.As != "" {
			doc.Refuse(path+".as", err.Error(), "write namespace/app-id, such as shop/checkout")
		}
		if l.TLS && e.TLS == nil {
			doc.Refuse(path+".tls", "there is no certificate for it", "write dns: {tls: {cert: …, key: …}} with its files in PEM")
		}
	}
	if e.TLS != nil && !withTLS && !doc.Wrong("listen.dns") {
		doc.Refuse("dns.tls", "no listener has TLS", "write listen: {dns: [{address: \"0.0.0.0:853\", tls: true}]}, or leave dns.tls out")
	}
}

func (e endpoints) checkAddresses(doc *strict.Document) {
	for i, s := range e.Nameserver {
		if a, err := netip.ParseAddr(s); s != "" && (err != nil || a.IsUnspecified() || a.Zone() != "") {
			doc.Refuse(fmt.Sprintf("dns.nameserver[%d]", i), fmt.Sprintf("%q is no address that others could ask", s), "write an IP address such as 192.0.2.53")
		}
	}
	for i, s := range e.Forwarders {
		if _, err := parsePrefix(s); s != "" && err != nil {
			doc.Refuse(fmt.Sprintf("dns.forwarders[%d]", i), fmt.Sprintf("%q is no network", s), "write one such as 10.0.0.0/8, or an IP address")
		}
	}
	right := true
	for i, s := range e.Forward {
		if _, err := parseUpstream(s); err != nil {
			right = false
			if s != "" { // refused already
				doc.Refuse(fmt.Sprintf("dns.forward[%d]", i), fmt.Sprintf("%q is no address of a server", s), "write an IP address such as 10.96.0.10 or \"1.1.1.1:53\"")
			}
		}
	}
	if doc.Has("dns.forward") && len(e.Forward) == 0 && !doc.Wrong("dns.forward") {
		doc.Refuse("dns.forward", "names no server", "write one such as 10.96.0.10, or leave forward out, and other names are refused")
	} else if right && len(e.Forward) > 0 {
		_, err := forward.New(forward.Config{Upstreams: e.upstreams(), Own: e.addresses()}, slog.New(slog.DiscardHandler))
		if err != nil {
			doc.Refuse("dns.forward", strings.TrimPrefix(err.Error(), "dns: "), "")
		}
	}
}

func (e endpoints) checkSecrets(doc *strict.Document) {
	if t := e.TLS; t != nil && !doc.Wrong("dns.tls") && (t.Cert == "" || t.Key == "") {
		doc.Refuse("dns.tls", "cert and key go together", "name both files, in PEM")
	}
	if !doc.Wrong("dns.cookieSecret") {
		doc.Merge("dns.cookieSecret", e.CookieSecret.Check())
	}
}

func (e endpoints) checkBounds(doc *strict.Document) {
	refuse := func(path string, value, least, most int) {
		if doc.Has(path) && !doc.Wrong(path) && (value < least || value > most) {
			doc.Refuse(path, fmt.Sprintf("%d is out of bounds", value), fmt.Sprintf("write a number from %d to %d, or leave it out", least, most))
		}
	}
	refuse("dns.maxTCP", e.MaxTCP, 1, 1_000_000)
	if e.Cache != nil {
		refuse("dns.cache", *e.Cache, 0, 10_000_000)
	}
	if r := e.RateLimit; r != nil {
		refuse("dns.rateLimit.responses", r.Responses, 0, 1_000_000)
		if r.Slip != nil {
			refuse("dns.rateLimit.slip", *r.Slip, 0, 100)
		}
		if !doc.Has("dns.rateLimit.responses") && !doc.Wrong("dns.rateLimit") {
			doc.Refuse("dns.rateLimit", "does not say how many", "write {responses: 20, slip: 2}, or {responses: 0} for no limit")
		}
	}
}

// parsePrefix reads a network, or an address as the network that has it alone.
func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s holds on one machine only", s)
		}
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && p.Addr().Is4In6() {
		err = fmt.Errorf("%s is an IPv4 network in IPv6", s)
	}
	return p.Masked(), err
}

// parseUpstream reads an address with or without a port, which is 53 then.
func parseUpstream(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if alone, noPort := netip.ParseAddr(s); noPort == nil {
		a, err = netip.AddrPortFrom(alone, 53), nil
	}
	if err == nil && (a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast()) {
		err = fmt.Errorf("nobody can be asked at %s", s)
	}
	return a, err
}

func (d *Settings) upstreams() []netip.AddrPort {
	all := make([]netip.AddrPort, len(d.Forward))
	for i, s := range d.Forward {
		all[i], _ = parseUpstream(s) // was checked
	}
	return all
}

// addresses are where DNS is answered, of those that are written as IP addresses.
func (e endpoints) addresses() []netip.AddrPort {
	var all []netip.AddrPort
	for _, l := range e.all {
		address := l.Address
		if strings.HasPrefix(address, ":") {
			address = "[::]" + address
		}
		if a, err := netip.ParseAddrPort(address); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// zone adds what is configured to a zone, with a secret for cookies from where it is.
func (d *Settings) zone(z zone.Config) (zone.Config, error) {
	z.Kubernetes, z.TTL, z.GatewayTTL = d.Kubernetes, d.TTL, d.GatewayTTL
	for _, s := range d.Nameserver {
		a, _ := netip.ParseAddr(s) // was checked, as the others
		z.Nameserver = append(z.Nameserver, a.Unmap())
	}
	for _, s := range d.Forwarders {
		p, _ := parsePrefix(s)
		z.Forwarders = append(z.Forwarders, p)
	}
	var err error
	z.CookieSecret, err = d.cookieSecret()
	return z, err
}

// rateLimit is that of a listener.
func (d *Settings) rateLimit(l Endpoint) transport.RateLimit {
	switch {
	case d.RateLimit != nil && d.RateLimit.Slip == nil:
		return transport.RateLimit{Responses: d.RateLimit.Responses, Slip: DefaultSlip}
	case d.RateLimit != nil:
		return transport.RateLimit{Responses: d.RateLimit.Responses, Slip: *d.RateLimit.Slip}
	case edge.OnLoopback(l.Address):
		return transport.RateLimit{}
	default:
		return transport.RateLimit{Responses: DefaultResponses, Slip: DefaultSlip}
	}
}

// cookieSecret is the one that is configured, or a new one.
func (d *Settings) cookieSecret() (secret [16]byte, err error) {
	if d.CookieSecret == nil {
		rand.Read(secret[:])
		return secret, nil
	}
	text, err := d.CookieSecret.Read()
	if err != nil {
		return secret, fmt.Errorf("dns.cookieSecret: %w", err)
	}
	n, err := hex.Decode(secret[:], []byte(text[:min(len(text), hex.EncodedLen(len(secret)))]))
	if err != nil || n != len(secret) || len(text) != hex.EncodedLen(n) {
		return secret, errors.New("dns.cookieSecret: is not 16 bytes in hexadecimal; make one with: openssl rand -hex 16")
	}
	return secret, nil
}
