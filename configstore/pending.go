package configstore

import (
	"slices"
	"strings"
	"sync"
)

// Pending holds what a store has said and its reader has not taken yet, at most one thing
// of each path: so a store that tells of every change never waits for a reader that is
// busy, nothing queues for that reader, and what it gets next is the newest. One goroutine
// adds while another takes. NewPending makes one.
type Pending struct {
	news chan struct{} // has one element while there is something to take

	mu        sync.Mutex
	noted     map[string]*Pair // since the last Commit; nil for what is deleted
	committed map[string]*Pair
	at        Version
}

// NewPending makes a Pending with nothing in it.
func NewPending() *Pending {
	return &Pending{news: make(chan struct{}, 1), noted: map[string]*Pair{}, committed: map[string]*Pair{}}
}

// Add is a Note of each, and then a Commit: for a store that tells at once all that was
// written together.
func (p *Pending) Add(put []Pair, deleted []string, at Version) {
	for _, pair := range put {
		p.Note(pair)
	}
	for _, path := range deleted {
		p.NoteDeleted(path)
	}
	p.Commit(at)
}

// Note notes what the store has put. It can't be taken before the next Commit.
func (p *Pending) Note(pair Pair) { p.note(pair.Path, &pair) }

// NoteDeleted notes what the store has deleted. It can't be taken before the next Commit.
func (p *Pending) NoteDeleted(path string) { p.note(path, nil) }

func (p *Pending) note(path string, pair *Pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noted[path] = pair
}

// Commit lets all that is noted be taken, together: up to a version, nothing is missing.
func (p *Pending) Commit(at Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, pair := range p.noted {
		p.committed[path] = pair
	}
	clear(p.noted)
	p.at = at
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// News has an element when there has been a Commit since the last Take, and sometimes
// after that.
func (p *Pending) News() <-chan struct{} { return p.news }

// Take returns what has been committed since the last Take, as Ledger.Apply takes it, and
// the version of the last Commit.
func (p *Pending) Take() (put []Pair, deleted []string, at Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, pair := range p.committed {
		if pair == nil {
			deleted = append(deleted, path)
		} else {
			put = append(put, *pair)
		}
	}
	slices.Sort(deleted)
	slices.SortFunc(put, func(a, b Pair) int { return strings.Compare(a.Path, b.Path) })
	clear(p.committed)
	return put, deleted, p.at
}
