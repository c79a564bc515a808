package live

import "sync"

// Inbox holds notes of some goroutines for another, which takes them when it has the time. It gets
// the newest, and nobody waits for it. Make it with [NewInbox].
type Inbox[T any] struct {
	news chan struct{} // has one element while there is something to take

	mu   sync.Mutex
	held T
}

// NewInbox makes an Inbox that holds a value.
func NewInbox[T any](held T) *Inbox[T] {
	return &Inbox[T]{held: held, news: make(chan struct{}, 1)}
}

// Note changes the notes, and wakes their reader.
func (i *Inbox[T]) Note(change func(held *T)) {
	i.Look(change)
	select {
	case i.news <- struct{}{}:
	default:
	}
}

// Look reads or takes the notes, and wakes nobody.
func (i *Inbox[T]) Look(at func(held *T)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at(&i.held)
}

// News has an element when there has been a Note since it was last received from, and sometimes
// after that.
func (i *Inbox[T]) News() <-chan struct{} { return i.news }
