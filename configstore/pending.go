package configstore

import (
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Pending holds the changes that a reader has not taken yet, at most one for each path. So a store
// never waits for a busy reader, nothing queues, and the reader gets the newest state next. One
// goroutine adds while another takes. NewPending makes one.
type Pending struct{ *live.Inbox[pending] }

type pending struct {
	noted     map[string]*Pair // since the last Commit; nil for what is deleted
	committed map[string]*Pair
	at        Version
}

// NewPending makes a Pending with nothing in it.
func NewPending() *Pending {
	return &Pending{live.NewInbox(pending{noted: map[string]*Pair{}, committed: map[string]*Pair{}})}
}

// Note notes what the store has put. It can't be taken before the next Commit.
func (p *Pending) Note(pair Pair) { p.note(pair.Path, &pair) }

// NoteDeleted notes what the store has deleted. It can't be taken before the next Commit.
func (p *Pending) NoteDeleted(path string) { p.note(path, nil) }

func (p *Pending) note(path string, pair *Pair) {
	p.Look(func(held *pending) { held.noted[path] = pair })
}

// Commit lets all that is noted be taken, together: up to a version, nothing is missing.
func (p *Pending) Commit(at Version) {
	p.Inbox.Note(func(held *pending) {
		maps.Copy(held.committed, held.noted)
		clear(held.noted)
		held.at = at
	})
}

// Take returns the commits since the last Take, as Ledger.Apply takes it, and the version of the
// last Commit.
func (p *Pending) Take() (put []Pair, deleted []string, at Version) {
	p.Look(func(held *pending) {
		for _, path := range slices.Sorted(maps.Keys(held.committed)) {
			if pair := held.committed[path]; pair != nil {
				put = append(put, *pair)
			} else {
				deleted = append(deleted, path)
			}
		}
		clear(held.committed)
		at = held.at
	})
	return put, deleted, at
}
