package show

import (
	"fmt"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/admin"
)

// Unhealthy says what of a service is not as it should be, a line each; nothing where all is
// well.
func Unhealthy(s *v1alpha1.StatusResponse, now time.Time) []string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if s.GetIdentityError() != "" {
		add("identity: %s", s.GetIdentityError())
	}
	switch away := admin.Away(s, now); {
	case away != "":
		add("store %s is %s", s.GetStore().GetName(), away)
	case !s.GetStore().GetReady():
		add("store %s: not read yet", s.GetStore().GetName())
	}
	for _, o := range s.GetRefused() {
		add("refused: %s", o.GetError())
	}
	for _, source := range s.GetSources() {
		switch {
		case source.GetError() != "":
			add("source %s: %s", source.GetName(), source.GetError())
		case !source.GetReady():
			add("source %s: not read yet", source.GetName())
		case refusedOf(source) > 0:
			add("source %s: %d entries can't be used; isthmus status -v shows them", source.GetName(), refusedOf(source))
		}
	}
	for _, p := range s.GetPeers() {
		if p.GetState() != "connected" {
			add("peer %s is %s%s", p.GetCluster(), p.GetState(), after(": ", p.GetError()))
		}
		if p.GetUnreachedBy() > 0 {
			add("peer %s: %s", p.GetCluster(), unreached(p, now))
		}
	}
	for _, u := range s.GetDns().GetUpstreams() {
		if !u.GetUp() {
			add("dns upstream %s does not answer", u.GetAddress())
		}
	}
	for _, m := range s.GetTrust() {
		if c := CertificateOf(m, now); c.outOfTime() || c.Error != "" {
			add("%s: %s", c.who(), c.advice())
		}
	}
	return wrong
}
