package peering

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// The states of a link, as "isthmus status" prints them.
const (
	connecting = "connecting" // no message arrives at the moment; the last state stays
	connected  = "connected"
	stale      = "stale"  // the lease has ended
	damped     = "damped" // the lease ended too often lately: a last resort
)

// linkStatus is the state of a link, for operators. It is safe for concurrent use.
type linkStatus struct {
	heard live.Value[bool] // whether messages arrive on any stream

	mu         sync.Mutex
	state      string
	since      time.Time
	streams    map[*clientStream]struct{} // on which messages arrive
	gateways   *gateways
	resting    bool
	count      int // exports
	ready      int // exports with a ready instance
	followed   int // exports of which all is known
	refused    []*v1alpha1.RefusedObject
	revision   uint64
	hears      string
	hearsKnown bool // the peer has sent hears
	version    string
	ahead      time.Duration // its clock is ahead of ours
	object     *catalog.Cluster
	err        error     // of the primary channel, with the object
	logged     []string  // errors that were logged since the last message
	unanswered time.Time // latest message, if it echoes no recent ping
	namesakes  namesakes
}

// update sets the state; mu is held.
func (s *linkStatus) update(lease leaseState) {
	state, guest := connecting, s.object != nil && s.object.Guest != nil
	switch {
	case s.resting:
		state = catalog.PeerResting
	case guest && (!lease.fresh || len(s.streams) == 0):
		state = catalog.GuestAway
	case guest:
		state = connected
	case !lease.last.IsZero() && !lease.fresh:
		state = stale
	case !lease.damped.IsZero():
		state = damped
	case lease.fresh && len(s.streams) > 0:
		state = connected
	}
	if s.state != state {
		s.state, s.since = state, time.Now()
	}
}

// current updates and returns the state of the link.
func (s *linkStatus) current(lease leaseState) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(lease)
	return s.state
}

// setHeard records whether messages arrive on a stream. It returns true if that changes the link.
func (s *linkStatus) setHeard(t *clientStream, heard bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.streams) > 0
	if heard {
		if s.streams == nil {
			s.streams = map[*clientStream]struct{}{}
		}
		s.streams[t] = struct{}{}
	} else {
		delete(s.streams, t)
		delete(s.namesakes.admitted, t)
	}
	if now := len(s.streams) > 0; now != before {
		s.heard.Store(now)
		return true
	}
	return false
}

func (s *linkStatus) setResting(rests bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting = rests
}

func (s *linkStatus) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resting
}

// noteAnswer records whether a message echoes a recent ping, and returns just that.
func (s *linkStatus) noteAnswer(does bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unanswered = time.Time{}
	if !does {
		s.unanswered = time.Now()
	}
	return does
}

// setGateways sets the gateways in use.
func (s *linkStatus) setGateways(g *gateways) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gateways, s.err, s.logged = g, nil, nil
	g.setObject(s.object)
}

// setObject sets the Cluster object. Errors of the one before no longer count, such as one about
// missing roots.
func (s *linkStatus) setObject(object *catalog.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object, s.err, s.logged = object, nil, nil
	s.namesakes.others = nil // an operator has looked at it
	if s.gateways != nil {
		s.gateways.setObject(object)
	}
}

// introduce records the version and the clock of a peer, if the message has them. It arrived at a
// moment of our clock.
func (s *linkStatus) introduce(m *v1alpha1.ExportsResponse, at time.Time) {
	if m.GetNowUnixMs() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = catalog.Printable(m.GetVersion()[:min(len(m.GetVersion()), maxName)])
	s.ahead = time.UnixMilli(m.GetNowUnixMs()).Sub(at)
}

// setPeerInfo records the peer's revision, unless it is 0, and the state of its own link here.
func (s *linkStatus) setPeerInfo(revision uint64, hears string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != 0 {
		s.revision = revision
	}
	if len(hears) <= maxName {
		s.hears, s.hearsKnown = catalog.Printable(hears), true
	}
}

// setExports copies the figures of the mirror.
func (s *linkStatus) setExports(k *exportMirror) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.ready, s.followed = len(k.exports), k.ready, len(k.exports)-k.named
	if len(k.refused) == 0 && s.refused == nil {
		return
	}
	s.refused = nil
	for app, err := range k.refused {
		s.refused = append(s.refused, &v1alpha1.RefusedObject{Source: catalog.Printable(app.String()), Error: err.Error()})
	}
	slices.SortFunc(s.refused, func(a, b *v1alpha1.RefusedObject) int { return cmp.Compare(a.Source, b.Source) })
}

// maxLogged is how many errors are kept, to log each one once.
const maxLogged = 8

// failed records why there is no stream of exports, with the Cluster object that was used; nil
// means that there is one. It returns true if the error should be logged: once until the next
// message arrives.
func (s *linkStatus) failed(by *catalog.Cluster, err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.err, s.logged = nil, nil
		return false
	case by != s.object:
		return false
	}
	if errors.Is(err, errHungUp) && errors.As(s.err, &tlsAlert{}) {
		return false // the alert says more, and was only lost this time
	}
	s.err = err
	text := err.Error()
	if slices.Contains(s.logged, text) {
		return false
	}
	if len(s.logged) == maxLogged {
		s.logged = s.logged[1:]
	}
	s.logged = append(s.logged, text)
	return true
}

// fails tells whether the peer was asked for its exports by all of its gateways, and did not say them.
func (s *linkStatus) fails() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Is(s.err, errUnready) || s.err != nil && s.gateways.allFail()
}

// lostSince tells whether an attempt has failed at each gateway since a moment.
func (s *linkStatus) lostSince(began time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateways.allLostSince(began)
}

// wire encodes the status.
func (s *linkStatus) wire(cluster string, lease leaseState) *v1alpha1.PeerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(lease)
	w := &v1alpha1.PeerStatus{
		Cluster: cluster, State: s.state, SinceUnixMs: wallClock(s.since), LastWordUnixMs: wallClock(lease.last),
		Exports: uint32(s.count), Ready: uint32(s.ready), Followed: uint32(s.followed), Refused: s.refused, Revision: s.revision, Hears: s.hears,
		LeaseLeftMs: lease.left.Milliseconds(), StaleAfterMs: lease.after.Milliseconds(),
		Lapses: lease.lapses, DampedUntilUnixMs: wallClock(lease.damped),
		Version: s.version, ClockAheadMs: s.ahead.Milliseconds(),
	}
	for _, l := range lease.log {
		w.RecentLapses = append(w.RecentLapses, &v1alpha1.Lapse{AtUnixMs: wallClock(l.at), BackUnixMs: wallClock(l.back), Why: l.why})
	}
	if s.err != nil {
		w.Error = s.err.Error()
	}
	if s.gateways != nil {
		w.Gateways = s.gateways.wire()
	}
	w.SecondService = s.second(cluster)
	return w
}

// wallClock converts a moment to Unix milliseconds by its monotonic age, so that a clock that was
// set does not matter. It returns 0 for the zero time.
func wallClock(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return time.Now().Add(-time.Since(t)).UnixMilli()
}
