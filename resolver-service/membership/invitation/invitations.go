package invitation

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Bounds of the invitations of one service.
const (
	maxOpen  = 32
	maxEnded = 128
	keptFor  = time.Hour // after the end, so that a replay is refused by its reason
	maxTries = 5
)

// The states of an invitation, and of its acceptance.
const (
	stateOpen    = "open"
	stateMeeting = "meeting" // both sides have proved themselves
	stateConfirm = "confirm" // the same, and this side waits for its person
	stateLinked  = "linked"
	stateRefused = "refused"
)

// entry is an invitation of this service. The lock of invitations guards its fields.
type entry struct {
	invitation *invitation
	options    *v1alpha1.LinkOptions
	state      live.Value[*v1alpha1.LinkState] // immutable messages
	tries      int
	held       bool      // a meeting that has proved itself is under way
	writing    bool      // it is too late to revoke
	ended      time.Time // zero: it is open
	stop       chan struct{}
	confirmed  chan bool
}

// invitations has the invitations of this service, and nothing else has them.
type invitations struct {
	mu  sync.Mutex
	now func() time.Time
	all map[string]*entry // by ID
}

func newInvitations(now func() time.Time) *invitations {
	return &invitations{now: now, all: map[string]*entry{}}
}

// add opens an invitation.
func (b *invitations) add(i *invitation, o *v1alpha1.LinkOptions, replica, by string) (*entry, *Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidy()
	open := 0
	for _, e := range b.all {
		if e.ended.IsZero() {
			open++
		}
	}
	if open >= maxOpen {
		return nil, refusef(Busy, "%d invitations are open here, and no more are taken: revoke some", open)
	}
	e := &entry{invitation: i, options: o, stop: make(chan struct{}), confirmed: make(chan bool, 1)}
	e.state.Store(&v1alpha1.LinkState{
		Id: hex.EncodeToString(i.Id), Cluster: i.GetInvited(), State: stateOpen, ExpiresUnixMs: i.expires().UnixMilli(),
		TriesLeft: maxTries, Replica: replica, By: by,
	})
	b.all[string(i.Id)] = e
	return e, nil
}

// tidy ends what has expired, and forgets what ended long ago.
func (b *invitations) tidy() {
	now := b.now()
	var ended []*entry
	for id, e := range b.all {
		if e.ended.IsZero() && !e.held && !now.Before(e.invitation.expires()) {
			b.end(e, Expired)
		}
		switch {
		case e.ended.IsZero():
		case now.Sub(e.ended) > keptFor:
			delete(b.all, id)
		default:
			ended = append(ended, e)
		}
	}
	if len(ended) > maxEnded {
		slices.SortFunc(ended, func(a, b *entry) int { return a.ended.Compare(b.ended) })
		for _, e := range ended[:len(ended)-maxEnded] {
			delete(b.all, string(e.invitation.Id))
		}
	}
}

// update changes the state that operators see.
func (e *entry) update(edit func(*v1alpha1.LinkState)) {
	was, _ := e.state.Load()
	next := proto.CloneOf(was)
	edit(next)
	e.state.Store(next)
}

// end ends an invitation and wipes its secret. Nobody uses the secret of one that has ended.
func (b *invitations) end(e *entry, why Reason) {
	if !e.ended.IsZero() {
		return
	}
	e.ended = b.now()
	clear(e.invitation.secret)
	close(e.stop)
	e.update(func(m *v1alpha1.LinkState) {
		if why == Used {
			m.State = stateLinked
			return
		}
		m.State = string(why)
		if why == NotConfirmed {
			m.State = stateRefused
		}
		m.Reason, m.Error = string(why), refuse(why, "").Error()
	})
}

// over is why an invitation can't be used any more; nil while it can.
func (e *entry) over() *Refusal {
	if e.ended.IsZero() {
		return nil
	}
	m, _ := e.state.Load()
	if m.GetState() == stateLinked {
		return refuse(Used, "")
	}
	return refuse(Reason(m.GetReason()), "")
}

// open tells whether the time of any invitation runs. One that was used before its time is over
// counts, so that a second use is refused by its reason.
func (b *invitations) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidy()
	now := b.now()
	for _, e := range b.all {
		if now.Before(e.invitation.expires()) {
			return true
		}
	}
	return false
}

// try judges a meeting's claim to an invitation, with the lock held, so that tries are counted
// one by one. One that fails costs a try. After one that succeeds, the meeting holds the
// invitation until [invitations.release] or [invitations.commit].
func (b *invitations) try(id []byte, judge func(*entry) *Refusal) (*entry, *Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidy()
	e := b.all[string(id)]
	if e == nil {
		return nil, refuse(Unknown, "")
	}
	if r := e.over(); r != nil {
		return nil, r
	}
	if r := judge(e); r != nil {
		e.tries++
		e.update(func(m *v1alpha1.LinkState) {
			m.TriesLeft, m.Reason, m.Error = uint32(maxTries-e.tries), string(r.Reason), r.Error()
		})
		if e.tries >= maxTries {
			b.end(e, Spent)
		}
		return e, r
	}
	if e.held {
		return nil, refuse(Busy, "")
	}
	e.held = true
	select {
	case <-e.confirmed: // of a meeting before
	default:
	}
	return e, nil
}

// release opens an invitation again whose meeting has come to nothing.
func (b *invitations) release(e *entry, why *Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.held, e.writing = false, false
	if why.Reason == NotConfirmed {
		b.end(e, NotConfirmed)
	}
	if e.ended.IsZero() {
		e.update(func(m *v1alpha1.LinkState) {
			m.State, m.Words, m.Reason, m.Error = stateOpen, nil, string(why.Reason), why.Error()
		})
	}
	b.tidy()
}

// begin is asked right before the object is written. From then on, nobody revokes the invitation.
func (b *invitations) begin(e *entry) *Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := e.over(); r != nil {
		return r
	}
	e.writing = true
	return nil
}

// commit is the end of an invitation that was used.
func (b *invitations) commit(e *entry, object []byte, result string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.held, e.writing = false, false
	e.update(func(m *v1alpha1.LinkState) { m.Object, m.Result, m.Reason, m.Error = object, result, "", "" })
	b.end(e, Used)
}

// find is the invitation whose ID begins so, if there is just one.
func (b *invitations) find(id string) (*entry, *Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidy()
	var found []*entry
	for _, e := range b.all {
		if id != "" && strings.HasPrefix(hex.EncodeToString(e.invitation.Id), id) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 0:
		return nil, refusef(NotHere, "there is no invitation %.40q here", id)
	case 1:
		return found[0], nil
	}
	return nil, refusef(Malformed, "%d invitations begin with %.40q", len(found), id)
}

// revoke ends an open invitation, also in the middle of a meeting.
func (b *invitations) revoke(id string) (*v1alpha1.LinkState, *Refusal) {
	e, r := b.find(id)
	if r != nil {
		return nil, r
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := e.over(); r != nil {
		return nil, r
	}
	if e.writing {
		return nil, refuse(Busy, "the other cluster's object is being written at this moment")
	}
	b.end(e, Revoked)
	m, _ := e.state.Load()
	return m, nil
}

// list is every invitation, the one that ends last first.
func (b *invitations) list() (all []*v1alpha1.LinkState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidy()
	for _, e := range b.all {
		m, _ := e.state.Load()
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *v1alpha1.LinkState) int {
		return cmp.Or(cmp.Compare(b.GetExpiresUnixMs(), a.GetExpiresUnixMs()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return all
}
