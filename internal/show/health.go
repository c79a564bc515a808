package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Judged completes a status by its faults and the states of certificates.
func Judged(s *v1alpha1.StatusResponse, now time.Time) *v1alpha1.StatusResponse {
	Certificates(s, now)
	s.Unhealthy = Unhealthy(s, now)
	s.Healthy = len(s.GetUnhealthy()) == 0
	return s
}

// Problem is a fault, in a line.
func Problem(p *v1alpha1.Unhealthy) string {
	const most = 8
	names, kind := p.GetNames(), p.GetKind()
	if len(names) > 1 {
		kind += "s"
	}
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	text = strings.TrimSpace(kind+" "+text) + ": " + p.GetWhat()
	if len(names) > 1 && !p.GetAlike() {
		text += " (" + names[0] + ")"
	}
	return text
}

// problems collects what is wrong. The same of several subjects is one problem.
type problems struct {
	all  []*v1alpha1.Unhealthy
	like []string // of each, equal where the same is wrong with two
}

// add adds a problem. What differs in its text from one subject to the next is left out of the
// comparison.
func (p *problems) add(kind, name, what string, differs ...string) {
	like := what
	for _, part := range append(differs, name) {
		if part != "" {
			like = strings.ReplaceAll(like, part, "…")
		}
	}
	for i, one := range p.all {
		if one.GetKind() == kind && p.like[i] == like && name != "" {
			one.Names = append(one.Names, name)
			return
		}
	}
	one := &v1alpha1.Unhealthy{Kind: kind, What: what, Alike: like == what}
	if name != "" {
		one.Names = append(one.Names, name)
	}
	p.all, p.like = append(p.all, one), append(p.like, like)
}

// Unhealthy says what of a service is not as it should be; nothing where all is well.
func Unhealthy(s *v1alpha1.StatusResponse, now time.Time) []*v1alpha1.Unhealthy {
	all := &problems{}
	if s.GetIdentityError() != "" {
		all.add("identity", "", s.GetIdentityError())
	}
	switch away := Away(s, now); {
	case away != "":
		all.add("store", s.GetStore().GetName(), away)
	case !s.GetStore().GetReady():
		all.add("store", s.GetStore().GetName(), "not read yet")
	}
	for _, o := range s.GetRefused() {
		all.add("object", "", "refused: "+inLine(o.GetError(), o.GetSource()))
	}
	for _, source := range s.GetSources() {
		switch {
		case source.GetError() != "":
			all.add("source", source.GetName(), strings.TrimPrefix(sourceState(source, now)+": ", "ready: ")+source.GetError())
		case !source.GetReady():
			all.add("source", source.GetName(), "not read yet")
		case refusedOf(source) > 0:
			all.add("source", source.GetName(), fmt.Sprintf("%d entries can't be used; isthmus status -v shows them", refusedOf(source)))
		}
	}
	all.addPeers(naturally(s.GetPeers()), now)
	all.addDNS(s.GetDns(), now)
	all.addXDS(s, now)
	all.addPolicies(s.GetPolicies())
	all.addCalls(s)
	for _, p := range s.GetProblems() {
		all.add(p.GetCheck(), p.GetName(), p.GetWhat())
	}
	for _, c := range s.GetTrust() {
		if outOfTime(c, now) || c.GetError() != "" && news(peerOf(s, c.GetCluster()), c.GetError()) != "" {
			all.add(c.GetUse(), c.GetCluster(), Advice(c, now))
		}
	}
	return all.all
}

func (all *problems) addPeers(peers []*v1alpha1.PeerStatus, now time.Time) {
	for _, p := range peers {
		if p.GetState() == catalog.GuestAway {
			continue
		}
		var differs []string
		for _, g := range p.GetGateways() {
			differs = append(differs, g.GetAddress())
		}
		if !catalog.PeerWell(p.GetState()) {
			all.add("peer", p.GetCluster(), p.GetState()+after(": ", p.GetError()), differs...)
		}
		if t := p.GetTunnel(); t != nil && (t.GetOpen() == 0 || t.GetError() != "") {
			all.add("tunnel", p.GetCluster(), tunnels(t, now), age(t.GetSinceUnixMs(), now))
		}
		if p.GetSecondService() != "" {
			all.add("peer", p.GetCluster(), p.GetSecondService(), differs...)
		}
		i := p.GetIntroduces()
		if n := i.GetRefused() + i.GetDiffering() + i.GetOver(); n > 0 {
			all.add("peer", p.GetCluster(), fmt.Sprintf("introduces %d clusters that don't count as it says; isthmus check names them", n))
		}
		if p.GetUnreachedBy() > 0 {
			all.add("peer", p.GetCluster(), unreached(p, now), append(differs, age(p.GetUnreachedSinceUnixMs(), now))...)
		}
	}
}

// addCalls adds callers that can't call, and callees that don't answer.
func (all *problems) addCalls(s *v1alpha1.StatusResponse) {
	for _, f := range s.GetCallFaults() {
		all.all = append(all.all, &v1alpha1.Unhealthy{Kind: "calls", Names: []string{FaultName(f)}, What: f.GetWhat(), Alike: true})
		all.like = append(all.like, f.GetWhat())
	}
	if n := s.GetCallFaultsLeftOut(); n > 0 {
		all.add("calls", "", fmt.Sprintf("%d more faults of calls; isthmus check lists them", n))
	}
}

func (all *problems) addDNS(s *v1alpha1.DNSStatus, now time.Time) {
	for _, u := range s.GetUpstreams() {
		if !u.GetUp() {
			all.add("dns upstream", u.GetAddress(), "does not answer"+since(u.GetFailingUnixMs(), now)+after(": ", u.GetError()))
		}
	}
}

// Colours of what sums up.
const (
	green = "\x1b[1;32m"
	red   = "\x1b[1;31m"
)

// Summary writes a line that sums a status up, and then the faults.
func Summary(w io.Writer, s *v1alpha1.StatusResponse, now time.Time) {
	wrong := Unhealthy(s, now)
	colour, word := green, "HEALTHY"
	if len(wrong) > 0 {
		colour, word = red, "UNHEALTHY"
	}
	parts := []string{word, peersSummary(s.GetPeers()), storeSummary(s), sourcesSummary(s.GetSources())}
	if n := len(s.GetRefused()); n > 0 {
		parts = append(parts, fmt.Sprintf("OBJECTS %d refused", n))
	}
	for i, line := range fill(parts, columnsOf(w)) {
		line = held(line)
		if i == 0 {
			line = paint(w, colour, word) + strings.TrimPrefix(line, word)
		}
		Say(w, "%s\n", painted(line))
	}
	for _, p := range wrong {
		paragraph(w, "  ", "    ", Problem(p))
	}
}

// fill puts parts into lines, as many into each as there is room for.
func fill(parts []string, columns int) []string {
	lines := parts[:1:1]
	for _, part := range parts[1:] {
		last := &lines[len(lines)-1]
		if joined := *last + "   " + part; columns == 0 || len(joined) <= columns {
			*last = joined
		} else {
			lines = append(lines, part)
		}
	}
	return lines
}

func peersSummary(all []*v1alpha1.PeerStatus) string {
	if len(all) == 0 {
		return "PEERS none"
	}
	n, rest := 0, 0
	for _, p := range all {
		switch p.GetState() {
		case "connected":
			n++
		case catalog.PeerResting:
			rest++
		}
	}
	if rest > 0 {
		return fmt.Sprintf("PEERS %d of %d connected, %d at rest", n, len(all), rest)
	}
	return fmt.Sprintf("PEERS %d of %d connected", n, len(all))
}

func storeSummary(s *v1alpha1.StatusResponse) string {
	switch {
	case s.GetStore().GetError() != "":
		return "STORE away"
	case !s.GetStore().GetReady():
		return "STORE not read yet"
	}
	return "STORE ready"
}

func sourcesSummary(all []*v1alpha1.SourceStatus) string {
	n := 0
	for _, s := range all {
		if s.GetReady() && s.GetError() == "" {
			n++
		}
	}
	return fmt.Sprintf("SOURCES %d of %d ready", n, len(all))
}

// naturally are peers in the natural order of their names.
func naturally(all []*v1alpha1.PeerStatus) []*v1alpha1.PeerStatus {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *v1alpha1.PeerStatus) int { return natural(a.GetCluster(), b.GetCluster()) })
	return sorted
}

// natural compares names so that peer-2 comes before peer-10.
func natural(a, b string) int {
	for a != "" && b != "" {
		n, m := leadingDigits(a), leadingDigits(b)
		if n == 0 || m == 0 {
			if a[0] != b[0] {
				return strings.Compare(a, b)
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:n], "0"), strings.TrimLeft(b[:m], "0")
		switch {
		case len(x) != len(y):
			return len(x) - len(y)
		case x != y:
			return strings.Compare(x, y)
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

func leadingDigits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
