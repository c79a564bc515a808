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

	mu    sync.Mutex
	pairs map[string]*Pair // nil for what is deleted
	at    Version
}

// NewPending makes a Pending with nothing in it.
func NewPending() *Pending {
	return &Pending{news: make(chan struct{}, 1), pairs: map[string]*Pair{}}
}

// Add notes what the store has put and deleted up to a version. What was written together
// must be added together; then it is taken together, too.
func (p *Pending) Add(put []Pair, deleted []string, at Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pair := range put {
		p.pairs[pair.Path] = &pair
	}
	for _, path := range deleted {
		p.pairs[path] = nil
	}
	p.at = at
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// News has an element when there is something to take.
func (p *Pending) News() <-chan struct{} { return p.news }

// Take returns what has been added since the last Take, as Ledger.Apply takes it, and the
// version of the last Add.
func (p *Pending) Take() (put []Pair, deleted []string, at Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, pair := range p.pairs {
		if pair == nil {
			deleted = append(deleted, path)
		} else {
			put = append(put, *pair)
		}
	}
	slices.Sort(deleted)
	slices.SortFunc(put, func(a, b Pair) int { return strings.Compare(a.Path, b.Path) })
	clear(p.pairs)
	return put, deleted, p.at
}
