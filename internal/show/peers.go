package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// fewResting is how many peers at rest have a line each.
const fewResting = 5

// peers writes a line for each peer, those first that are not well, and below them what is to be
// known of some. Without details, many peers at rest have one line together.
func peers(w io.Writer, all []*v1alpha1.PeerStatus, details bool, now time.Time) error {
	if len(all) == 0 {
		return nil
	}
	Say(w, "\n")
	shown, atRest := worstFirst(all), 0
	if !details {
		shown, atRest = withoutResting(shown)
	}
	var table [][]string
	for _, p := range shown {
		l := PeerLineOf(p, now)
		table = append(table, []string{l.Cluster, l.State, l.For, l.LastWord, l.Lease, l.Exports, l.Ready, l.HearsUs, l.Gateways, l.Lapses, l.LastLapse})
	}
	heading := []string{"PEER", "STATE", "FOR", "LAST WORD", "LEASE", "EXPORTS", "READY", "HEARS US", "GATEWAYS", "LAPSES", "LAST LAPSE"}
	if err := rows(w, heading, table, "LAST WORD", "HEARS US", "READY", "LAST LAPSE"); err != nil {
		return err
	}
	if atRest > 0 {
		paragraph(w, "", "", fmt.Sprintf("and %d at rest, since nothing here leads to them; isthmus status -v has a line for each", atRest))
	}
	for _, p := range all {
		if n := len(p.GetRefused()); n > 0 {
			paragraph(w, "\n", "", fmt.Sprintf("peer %s: %d exports refused; isthmus status --peer %[1]s names them", p.GetCluster(), n))
		}
	}
	return nil
}

// withoutResting leaves out peers at rest that need nobody's attention, if there are many, and counts them.
func withoutResting(all []*v1alpha1.PeerStatus) (some []*v1alpha1.PeerStatus, atRest int) {
	some = slices.DeleteFunc(slices.Clone(all), func(p *v1alpha1.PeerStatus) bool { return p.GetState() == catalog.PeerResting && rank(p) == 1 })
	if atRest = len(all) - len(some); atRest <= fewResting {
		return all, 0
	}
	return some, atRest
}

// PeerLine is a peer in a line, each part in words.
type PeerLine struct {
	Cluster, State, For, LastWord, Lease, Exports, Ready, HearsUs, Gateways, Lapses, LastLapse, Version string

	Well bool
}

// PeerLineOf is the line of a peer.
func PeerLineOf(p *v1alpha1.PeerStatus, now time.Time) PeerLine {
	return PeerLine{
		Cluster: p.GetCluster(), State: p.GetState(), For: age(p.GetSinceUnixMs(), now), LastWord: lastWord(p, now), Lease: leaseColumn(p, now),
		Exports: number(p.GetExports()), Ready: number(p.GetReady()), HearsUs: hearsColumn(p), Gateways: tunnelsColumn(p),
		Lapses: number(p.GetLapses()), LastLapse: lastLapse(p, now), Version: p.GetVersion(), Well: rank(p) == 1,
	}
}

// Peers are the lines of the peers of a service, those first that are not well. Many that are at
// rest are only counted.
func Peers(s *v1alpha1.StatusResponse, now time.Time) (all []PeerLine, atRest int) {
	shown, atRest := withoutResting(worstFirst(s.GetPeers()))
	for _, p := range shown {
		all = append(all, PeerLineOf(p, now))
	}
	return all, atRest
}

// worstFirst are peers in the natural order of their names, those first that are not well.
func worstFirst(all []*v1alpha1.PeerStatus) []*v1alpha1.PeerStatus {
	all = naturally(all)
	slices.SortStableFunc(all, func(a, b *v1alpha1.PeerStatus) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

// rank is 0 for a peer that is not well, and 1 for others.
func rank(p *v1alpha1.PeerStatus) int {
	if !catalog.PeerWell(p.GetState()) || p.GetUnreachedBy() > 0 {
		return 0
	}
	return 1
}

// hearsColumn is how a peer hears this cluster.
func hearsColumn(p *v1alpha1.PeerStatus) string {
	if oneWay(p) {
		return "one-way"
	}
	return cmp.Or(p.GetHears(), "-")
}

// oneWay tells whether a peer that is heard has no link to this cluster.
func oneWay(p *v1alpha1.PeerStatus) bool { return p.GetState() == "connected" && p.GetHears() == "" }

// lastLapse is when the lease ended last.
func lastLapse(p *v1alpha1.PeerStatus, now time.Time) string {
	all := p.GetRecentLapses()
	if len(all) == 0 {
		return "-"
	}
	return age(all[len(all)-1].GetAtUnixMs(), now) + " ago"
}

// lapses are the times when the lease ended, the newest first.
func lapses(p *v1alpha1.PeerStatus) string {
	lines := []string{number(p.GetLapses()) + " since the service started"}
	for _, l := range slices.Backward(p.GetRecentLapses()) {
		back := "not back yet"
		if l.GetBackUnixMs() != 0 {
			back = fmt.Sprintf("back at %s, %s later", Stamp(l.GetBackUnixMs()), Span(time.Duration(l.GetBackUnixMs()-l.GetAtUnixMs())*time.Millisecond))
		}
		lines = append(lines, fmt.Sprintf("at %s, %s%s", Stamp(l.GetAtUnixMs()), back, after(": ", l.GetWhy())))
	}
	return strings.Join(lines, "\n")
}

// unreached is what callers say of the way to a peer.
func unreached(p *v1alpha1.PeerStatus, now time.Time) string {
	return fmt.Sprintf("%d of %d callers have not reached it for %s: %s", p.GetUnreachedBy(), p.GetCallers(), age(p.GetUnreachedSinceUnixMs(), now), p.GetUnreachedWhy())
}

func lastWord(p *v1alpha1.PeerStatus, now time.Time) string {
	if p.GetLastWordUnixMs() == 0 {
		return "never"
	}
	return age(p.GetLastWordUnixMs(), now) + " ago"
}

// leaseColumn is how long a peer's word holds, and for how long at most it is damped.
func leaseColumn(p *v1alpha1.PeerStatus, now time.Time) string {
	if p.GetDampedUntilUnixMs() != 0 {
		return leaseLeft(p) + ", damped " + dampedLeft(p, now)
	}
	return leaseLeft(p)
}

// leaseLeft is how long a peer's word holds.
func leaseLeft(p *v1alpha1.PeerStatus) string {
	switch left := time.Duration(p.GetLeaseLeftMs()) * time.Millisecond; {
	case left > 0:
		return Span(left)
	case p.GetLastWordUnixMs() == 0 || p.GetState() == catalog.PeerResting: // which needs none
		return "-"
	default:
		return "out"
	}
}

// dampedLeft is for how much longer at most a peer is damped.
func dampedLeft(p *v1alpha1.PeerStatus, now time.Time) string {
	return Span(max(0, time.UnixMilli(p.GetDampedUntilUnixMs()).Sub(now)))
}

// gatewaysLine counts gateways by state: "1 connected, 1 silent".
func gatewaysLine(all []*v1alpha1.GatewayStatus) string {
	var states []string
	count := map[string]int{}
	for _, g := range all {
		if count[g.GetState()]++; count[g.GetState()] == 1 {
			states = append(states, g.GetState())
		}
	}
	for i, state := range states {
		states[i] = fmt.Sprintf("%d %s", count[state], state)
	}
	return cmp.Or(strings.Join(states, ", "), "-")
}

// Peer writes all that a service knows of a peer, for people.
func Peer(w io.Writer, s *v1alpha1.StatusResponse, cluster string, now time.Time) error {
	p := peerOf(s, cluster)
	if p == nil {
		return fmt.Errorf("cluster %s has no link to %q; isthmus status lists those that there are, and isthmus get cluster those that are known", s.GetCluster(), cluster)
	}
	Say(w, "\npeer %s\n", cluster)
	if err := pairs(w, "  ", peerPairs(p, now)); err != nil {
		return err
	}
	for _, g := range p.GetGateways() {
		paragraph(w, "  ", "    ", fmt.Sprintf("gateway %s: %s for %s%s", g.GetAddress(), g.GetState(), age(g.GetSinceUnixMs(), now), after(": ", news(p, g.GetError()))))
	}
	for _, t := range s.GetTrust() {
		if t.GetCluster() == cluster {
			paragraph(w, "  ", "    ", t.GetUse()+": "+certificateLine(t, news(p, t.GetError()), now))
		}
	}
	for _, r := range p.GetRefused() {
		paragraph(w, "  ", "    ", fmt.Sprintf("refused %s: %s", inLine(r.GetSource(), r.GetSource()), inLine(r.GetError(), r.GetSource())))
	}
	return nil
}

// news is an error, unless it is in the peer's own already.
func news(p *v1alpha1.PeerStatus, err string) string {
	if strings.Contains(p.GetError(), err) {
		return ""
	}
	return err
}

// PeerPairs are names and values of all that a service knows of a peer; none where it has no link
// to it.
func PeerPairs(s *v1alpha1.StatusResponse, cluster string, now time.Time) (all [][2]string) {
	if p := peerOf(s, cluster); p != nil {
		all = peerPairs(p, now)
	}
	return all
}

func peerPairs(p *v1alpha1.PeerStatus, now time.Time) [][2]string {
	all := [][2]string{
		{"state", p.GetState() + " for " + age(p.GetSinceUnixMs(), now)},
		{"error", p.GetError()},
		{"second service", p.GetSecondService()},
		{"last word", lastWord(p, now)},
		{"revision", fmt.Sprint(p.GetRevision())},
		{"lease", leaseOf(p)},
		{"lapses", lapses(p)},
	}
	if p.GetDampedUntilUnixMs() != 0 {
		all = append(all, [2]string{"damped", "for up to another " + dampedLeft(p, now) + ": its lease ran out too often lately; until then, callers use it only where nothing else is ready"})
	}
	if p.GetUnreachedBy() > 0 {
		all = append(all, [2]string{"callers", unreached(p, now)})
	}
	if p.GetTunnel() != nil {
		all = append(all, [2]string{"tunnels", tunnels(p.GetTunnel(), now)})
	}
	if by := p.GetIntroducedBy(); by != "" {
		all = append(all, [2]string{"introduced", "by " + by + ": it has no Cluster object here"})
	}
	if p.GetIntroduces() != nil {
		all = append(all, [2]string{"introduces", introduces(p.GetIntroduces())})
	}
	return append(all,
		[2]string{"exports", fmt.Sprintf("%d to this cluster, %d of them ready", p.GetExports(), p.GetReady())},
		[2]string{"hears us", hears(p)},
		[2]string{"asks us", asks(p, now)})
}

// introduces is what a peer introduces here.
func introduces(i *v1alpha1.IntroducerStatus) string {
	if i.GetTold() == 0 {
		return "none so far: its Cluster objects select by spec.introduceTo who is told of them"
	}
	text := fmt.Sprintf("%d of %d clusters that it tells of count here", i.GetTaken(), i.GetTold())
	for _, n := range []struct {
		of   uint32
		what string
	}{
		{i.GetNotAccepted(), "not accepted by spec.introduces"}, {i.GetOutranked(), "with a Cluster object here, or by another introducer"},
		{i.GetRefused(), "refused"}, {i.GetDiffering(), "that another introducer introduces otherwise"}, {i.GetOver(), "too many"},
	} {
		if n.of > 0 {
			text += fmt.Sprintf("; %d %s", n.of, n.what)
		}
	}
	return text
}

// tunnels are those to or from a peer.
func tunnels(t *v1alpha1.TunnelStatus, now time.Time) string {
	who := "this cluster dials it"
	if t.GetMode() == catalog.TunnelAccept {
		who = "it dials this cluster"
	}
	if t.GetOpen() == 0 {
		return fmt.Sprintf("%s; none is open for %s%s", who, age(t.GetSinceUnixMs(), now), after(": ", t.GetError()))
	}
	return fmt.Sprintf("%s; %d open, the first for %s, with %d streams%s", who, t.GetOpen(), age(t.GetSinceUnixMs(), now), t.GetStreams(), after("; ", t.GetError()))
}

// tunnelsColumn stands in place of gateways that a peer has not.
func tunnelsColumn(p *v1alpha1.PeerStatus) string {
	switch t := p.GetTunnel(); {
	case t.GetMode() != catalog.TunnelAccept:
	case t.GetOpen() == 1:
		return "1 tunnel"
	default:
		return fmt.Sprintf("%d tunnels", t.GetOpen())
	}
	if p.GetState() == catalog.PeerResting { // its gateways are connected to for a moment
		return number(uint32(len(p.GetGateways())))
	}
	return gatewaysLine(p.GetGateways())
}

func hears(p *v1alpha1.PeerStatus) string {
	if oneWay(p) {
		return "one-way: no app there calls this cluster"
	}
	return cmp.Or(p.GetHears(), "it has not said")
}

// leaseOf is how long a peer's word holds, and how long a lease is when it begins.
func leaseOf(p *v1alpha1.PeerStatus) string {
	left := leaseLeft(p)
	if p.GetStaleAfterMs() == 0 {
		return left
	}
	return left + " of " + Span(time.Duration(p.GetStaleAfterMs())*time.Millisecond)
}

// asks tells whether a peer follows what this cluster exports.
func asks(p *v1alpha1.PeerStatus, now time.Time) string {
	switch {
	case p.GetAskedBy() > 0:
		return fmt.Sprintf("by %d streams", p.GetAskedBy())
	case p.GetRestsMs() > 0:
		return "now and then, since it calls nothing here: within " + Span(time.Duration(p.GetRestsMs())*time.Millisecond)
	case p.GetUnaskedSinceUnixMs() != 0:
		return "no, for " + age(p.GetUnaskedSinceUnixMs(), now)
	default:
		return "it never has"
	}
}

func peerOf(s *v1alpha1.StatusResponse, cluster string) *v1alpha1.PeerStatus {
	for _, p := range s.GetPeers() {
		if p.GetCluster() == cluster {
			return p
		}
	}
	return nil
}

// sources writes a line for each source of instances.
func sources(w io.Writer, all []*v1alpha1.SourceStatus, details bool, now time.Time) error {
	if len(all) == 0 {
		return nil
	}
	Say(w, "\n")
	var table [][]string
	for _, s := range all {
		table = append(table, []string{s.GetName(), sourceState(s, now), number(s.GetInstances()), fmt.Sprint(refusedOf(s))})
	}
	if err := rows(w, []string{"SOURCE", "STATE", "INSTANCES", "REFUSED"}, table); err != nil {
		return err
	}
	for _, s := range all {
		n := refusedOf(s)
		if n > fewRefused && !details {
			continue // the summary says how many
		}
		Say(w, "%s", painted(strings.Repeat("\n", min(n, 1))))
		for _, r := range s.GetRefused() {
			paragraph(w, "", "  ", fmt.Sprintf("source %s: refused %s: %s", s.GetName(), inLine(r.GetSource(), r.GetSource()), inLine(r.GetError(), r.GetSource())))
		}
		if named := len(s.GetRefused()); n > named {
			Say(w, "source %s: %d more, which are named once there are fewer\n", s.GetName(), n-named)
		}
	}
	return nil
}

// refusedOf is how many of a source are refused, of which the status names the first.
func refusedOf(s *v1alpha1.SourceStatus) int {
	return max(len(s.GetRefused()), int(s.GetRefusedCount()))
}

// fewRefused is how many refusals of a source are named where no details are asked for.
const fewRefused = 3

func sourceState(s *v1alpha1.SourceStatus, now time.Time) string {
	switch {
	case s.GetFailingUnixMs() != 0 && s.GetReady():
		return "stale for " + age(s.GetFailingUnixMs(), now)
	case s.GetFailingUnixMs() != 0:
		return "away for " + age(s.GetFailingUnixMs(), now)
	case !s.GetReady():
		return "not read yet"
	default:
		return "ready"
	}
}

// after is a text with something before it, or nothing.
func after(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}
