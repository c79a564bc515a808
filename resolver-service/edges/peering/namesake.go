package peering

import (
	"fmt"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// namesakeAfter is how long the first service has to be heard after another has answered under the
// same name, until that one is another cluster even when the first has gone. A new installation, which
// may begin before the old one is known to have ended, is over sooner.
const namesakeAfter = 10 * time.Second

// maxNamesakes bounds the services that are told apart for one name.
const maxNamesakes = 8

// namesakes tells services apart that have one cluster's name. The first that is heard is the
// cluster. Another is refused while the first is heard and, once both have been there for
// [namesakeAfter], for as long as the Cluster object stands: its apps are others. linkStatus.mu guards
// it.
type namesakes struct {
	service string    // whose exports count; empty: nobody has said
	heard   time.Time // when that was heard last
	others  map[string]*namesake
	silent  string // gateway that was last news for a server that does not say who it is
	// admitted are the streams of the first service from their first message on, until they are silent:
	// linkStatus has them once that message was applied.
	admitted map[*clientStream]struct{}
}

// takes notes a stream of the service whose exports count.
func (n *namesakes) takes(t *clientStream, service string) {
	if n.service, t.service, n.heard = service, service, time.Now(); n.admitted == nil {
		n.admitted = map[*clientStream]struct{}{}
	}
	n.admitted[t] = struct{}{}
}

// namesake is another service of the name.
type namesake struct {
	since   time.Time // it was first refused
	gateway string    // where it answered last
}

// secondCluster is the error of a namesake.
type secondCluster struct{ cluster, other, first string }

// Error names both services.
func (s secondCluster) Error() string {
	return fmt.Sprintf("a second service says that it is cluster %s: %.8s…, and the exports come from %.8s…; remove its gateway from spec.gateways, or give that cluster its own name in isthmus.yaml; "+
		"if it has replaced the first, apply the Cluster object again with it alone", s.cluster, s.other, s.first)
}

// cleanService makes what a peer says of its identity fit to be kept and logged.
func cleanService(service string) string {
	return catalog.Printable(catalog.Clip(service, configstore.MaxIdentity))
}

// admit tells whether the service that a stream has reached is the cluster. The text is news for the log: another service is refused, or has taken the place of
// the first. A service that does not say who it is, is admitted: one's own may be of an older release.
func (s *linkStatus) admit(t *clientStream, cluster, gateway, service string) (news string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if service == "" { // a stream says it once
		service = t.service
	}
	if service == "" {
		return s.noteSilent(t, gateway), nil
	}
	n := &s.namesakes
	beside := len(n.admitted) > 0
	o := n.others[service]
	switch {
	case n.service == "", service == n.service:
		n.takes(t, service)
		return "", nil
	case !beside && (o == nil || n.heard.Sub(o.since) < namesakeAfter): // it was installed anew
		n.takes(t, service)
		n.others = nil
		return "another service than before answers for a peer; its exports replace those of before", nil
	case o != nil:
		o.gateway = gateway
	case len(n.others) < maxNamesakes:
		if n.others == nil {
			n.others = map[string]*namesake{}
		}
		n.others[service] = &namesake{time.Now(), gateway}
		news = "a second service has the name of a peer; it is refused"
	}
	return news, secondCluster{cluster, service, n.service}
}

// noteSilent notes a message that does not say who has sent it; mu is held. It is news if the stream has
// not said so for [namesakeAfter], since a service may start without knowing it, and others do.
func (s *linkStatus) noteSilent(t *clientStream, gateway string) (news string) {
	if t.since.IsZero() {
		t.since, t.at = time.Now(), gateway
	}
	if !s.silent(t) || s.namesakes.silent == gateway {
		return ""
	}
	s.namesakes.silent = gateway
	return "a server behind a peer's gateways does not say who it is, while others do; it is let in, and may be another cluster"
}

// silent tells whether a stream is of a server that does not say who it is, while others do; mu is held.
func (s *linkStatus) silent(t *clientStream) bool {
	return t.service == "" && s.namesakes.service != "" && !t.since.IsZero() && time.Since(t.since) >= namesakeAfter
}

// second is the text about another service of the name, or about one that may be; mu is held.
func (s *linkStatus) second(cluster string) string {
	for service, o := range s.namesakes.others {
		return fmt.Sprintf("at gateway %s %v", o.gateway, secondCluster{cluster, service, s.namesakes.service})
	}
	for t := range s.streams {
		if s.silent(t) {
			return fmt.Sprintf("a server behind this peer's gateways, at %s, does not say who it is, while others do; if it is no replica of cluster %s, remove its gateway from spec.gateways; "+
				"if it is one, upgrade it, or let it read the identity of its store", t.at, cluster)
		}
	}
	return ""
}
