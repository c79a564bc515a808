package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// dnsLine is where DNS is answered; empty where it is not.
func dnsLine(s *v1alpha1.DNSStatus) string {
	var all []string
	for _, l := range s.GetListeners() {
		at := l.GetAddress()
		if protocols := strings.Join(l.GetProtocols(), "+"); protocols != "udp+tcp" {
			at += " by " + strings.ToUpper(protocols)
		}
		all = append(all, at+after(" as ", l.GetAs()))
	}
	return strings.Join(all, ", ")
}

// forwardLine is whom other names are asked of.
func forwardLine(s *v1alpha1.DNSStatus, now time.Time) string {
	var all []string
	for _, u := range s.GetUpstreams() {
		at := u.GetAddress()
		if !u.GetUp() {
			at += " (away" + since(u.GetFailingUnixMs(), now) + ")"
		}
		all = append(all, at)
	}
	return strings.Join(all, ", ")
}

// dns tells what is wrong with DNS.
func dns(w io.Writer, s *v1alpha1.DNSStatus, now time.Time) {
	for _, h := range s.GetHosts() {
		if h.GetError() == "" {
			continue
		}
		stands := "its clusters' gateway names have no address by it"
		if len(h.GetAddresses()) > 0 {
			stands = "answering with " + strings.Join(h.GetAddresses(), ", ")
		}
		paragraph(w, "\n", "  ", fmt.Sprintf("dns: gateway %s not resolved%s: %s; %s", h.GetName(), since(h.GetFailingUnixMs(), now), h.GetError(), stands))
	}
	unnamed(w, s)
}

// unnamed tells of answers that Dapr's resolver kubernetes can't use.
func unnamed(w io.Writer, s *v1alpha1.DNSStatus) {
	if n := s.GetByServerName(); n > 0 {
		paragraph(w, "\n", "  ", fmt.Sprintf("dns: %d answers to names of Dapr's services led to gateways that take who sends a server name alone; Dapr's nameformat does, "+
			"its resolver kubernetes does not: for its callers list a gateway with app and namespace in the Cluster object (isthmus explain says for which)", n))
	}
	if n := s.GetOtherPort(); n > 0 {
		paragraph(w, "\n", "  ", fmt.Sprintf("dns: %d answers to names of Dapr's services led to gateways of an app on another port than the caller's sidecar listens on; "+
			"Dapr's resolver kubernetes dials that one: correct spec.gateways of the Cluster object, or the sidecars' port", n))
	}
}

// since is " for" the time since a moment, if there is one.
func since(unixMs int64, now time.Time) string {
	if unixMs == 0 {
		return ""
	}
	return " for " + age(unixMs, now)
}
