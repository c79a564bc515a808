package check

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

func fail(found, fix string) *Result { return &Result{Level: Fail, Found: found, Fix: fix} }

const correctGateways = "correct spec.gateways of its Cluster object"

// gatewayPort finds a port that is closed or silent.
func gatewayPort(_ *Facts, v *visit) *Result {
	var unknown *net.DNSError
	switch err := v.large.dial; {
	case err == nil:
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail("the port is closed: connection refused", "start the gateway there, or "+correctGateways)
	case errors.As(err, &unknown):
		return fail(unknown.Error(), correctGateways+", or how this machine resolves names")
	case timedOut(err):
		return fail("no answer to a connection", "see that a gateway runs there, and that no firewall drops packets on the way; or "+correctGateways)
	default:
		return fail(err.Error(), correctGateways+", or the routes and firewalls on the way")
	}
	switch {
	case v.large.silent() && !v.small.answered:
		return fail("it takes connections, and does not answer a ClientHello", "see what listens there: it is no gateway, or a load balancer that has lost its gateway")
	case v.large.err != nil && !v.large.answered && !timedOut(v.large.err) && !v.small.answered:
		return fail("it takes connections, and closes them without an answer: "+v.large.err.Error(),
			"see what listens there: it is no gateway, or a load balancer without a gateway")
	}
	return nil
}

// gatewayMTU finds a way on which large packets are lost.
func gatewayMTU(_ *Facts, v *visit) *Result {
	if !v.large.silent() || !v.small.answered {
		return nil
	}
	return fail(fmt.Sprintf("a ClientHello of %d bytes or more gets no answer, and a small one does", largeHello),
		"lower the MTU of this machine's interface, or let ICMP through, so that the MTU on the way can be found out")
}

// gatewayProxy finds what sends the PROXY protocol to a gateway.
func gatewayProxy(_ *Facts, v *visit) *Result {
	if !v.large.alert("unexpected message") {
		return nil
	}
	return fail("something on the way puts the PROXY protocol before the ClientHello", "switch the PROXY protocol off at the load balancer in front of that gateway")
}

// gatewayServerName finds what takes the server name out.
func gatewayServerName(_ *Facts, v *visit) *Result {
	if !v.large.alert("missing extension") {
		return nil
	}
	return fail("the gateway gets connections without a server name (SNI)", "have the load balancer or firewall on the way pass TLS connections through unchanged")
}

// peerDomain finds another domain in the host names of the peer.
func peerDomain(f *Facts, v *visit) *Result {
	if !v.large.alert("unrecognized name") {
		return nil
	}
	return fail(fmt.Sprintf("its gateway does not know names under %s, this cluster's domain", f.Status.GetDomain()),
		"make domain the same in isthmus.yaml of both clusters; if it is, give that gateway a resolver service")
}

// gatewayTLS finds what ends TLS before the gateway.
func gatewayTLS(_ *Facts, v *visit) *Result {
	const through = "have it pass TLS connections through (TCP mode)"
	var plain tls.RecordHeaderError
	switch err := v.large.err; {
	case errors.As(err, &plain):
		return fail("it does not speak TLS", "the other end is no gateway, or its service has identity: insecure; "+correctGateways+", or give that service an identity")
	case err != nil && timedOut(err):
		return fail("it begins a handshake, and does not end it: "+err.Error(), "see the log of that gateway, and whether packets are lost on the way")
	case err != nil:
		return fail("the handshake fails: "+err.Error(), "see what listens there, and if it is a load balancer, "+through)
	case !v.insecure && v.id == (identity.ID{}):
		leaf := v.large.state.PeerCertificates[0]
		return fail(fmt.Sprintf("something before the gateway ends TLS: its certificate is for %s, and not of a resolver service", subject(leaf)), through)
	}
	return nil
}

// subject is the name of a certificate.
func subject(c *x509.Certificate) string {
	switch {
	case len(c.DNSNames) > 0:
		return strings.Join(c.DNSNames[:min(len(c.DNSNames), 3)], ", ")
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	}
	return c.Subject.String()
}

// peerName finds a gateway that leads to another cluster than its Cluster object says.
func peerName(f *Facts, v *visit) *Result {
	cluster, ok := identity.ServiceCluster(f.Prober.Namespace, v.id.App)
	own := f.Status.GetCluster()
	switch {
	case v.insecure || v.id.App == identity.ServiceApp(f.Prober.Namespace, v.cluster):
		return nil
	case !ok:
		return fail(fmt.Sprintf("it leads to %s, which is no resolver service", v.id), correctGateways)
	case cluster == own && f.own(v):
		return fail("it leads back to this cluster's own gateway", correctGateways)
	case cluster == own:
		return fail(fmt.Sprintf("the cluster there is named %s, as this one is", own), "give each cluster a name of its own: cluster in isthmus.yaml")
	default:
		return fail(fmt.Sprintf("it leads to cluster %s, and its Cluster object is named %s", cluster, v.cluster), "correct metadata.name or spec.gateways of the Cluster object")
	}
}

// own tells whether a gateway has shown this service's own certificate.
func (f *Facts) own(v *visit) bool {
	shown := identity.Fingerprint(v.large.state.PeerCertificates[0])
	for _, t := range f.Status.GetTrust() {
		if t.GetUse() == identity.OwnCertificate && t.GetFingerprint() == shown {
			return true
		}
	}
	return false
}

// rootsHere finds roots that are missing here.
func rootsHere(_ *Facts, v *visit) *Result {
	if v.trust == nil {
		return nil
	}
	found, fix := split(strings.TrimPrefix(v.trust.Error(), "identity: "))
	if fix == "" {
		fix = "see isthmus trust here and there, and the clocks of both"
	}
	return fail(found, fix)
}

// rootsThere finds roots that are missing at the peer.
func rootsThere(f *Facts, v *visit) *Result {
	if v.large.refused == nil {
		return nil
	}
	return fail(fmt.Sprintf("it refuses the certificate of this cluster: %v", v.large.refused),
		fmt.Sprintf("see that Cluster %s exists there, and has this cluster's root in spec.trust.roots; its log says which is missing", f.Status.GetCluster()))
}

// link finds a peer that is not connected, though its gateways answer.
func link(p *v1alpha1.PeerStatus) []Result {
	switch r := (Result{Level: Fail, Kind: ofPeer, Name: p.GetCluster()}); {
	case p.GetUnreachedBy() > 0:
		r.Found = fmt.Sprintf("%d of %d sidecars don't reach it: %s", p.GetUnreachedBy(), p.GetCallers(), p.GetUnreachedWhy())
		r.Fix = "see that the machines of these sidecars reach its gateways, too"
		return []Result{r}
	case catalog.PeerWell(p.GetState()):
		return nil
	case p.GetError() != "":
		r.Found, r.Fix = split(p.GetError())
		r.Found = p.GetState() + ": " + r.Found
		return []Result{r}
	default:
		r.Found, r.Fix = "the link is "+p.GetState(), "see isthmus status --peer "+p.GetCluster()
		return []Result{r}
	}
}

// split takes an error in the form that all of ours have, "what failed; what to do", apart.
func split(err string) (found, fix string) {
	found, fix, _ = strings.Cut(err, "; ")
	return found, fix
}
