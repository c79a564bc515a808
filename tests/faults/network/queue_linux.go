package network

import (
	"container/heap"
	"sync"
	"time"
)

// packet is on its way and arrives when it is due.
type packet struct {
	bytes []byte
	due   time.Time
}

// queue holds the packets on their way to one place, the one that is due first in front;
// of those due at one moment, the one that was sent first.
type queue struct {
	mu      sync.Mutex
	waiting byDue
	sent    uint64
	changed chan struct{} // has one element when another packet is in front
}

// maxWaiting is how many packets can be on their way to one place.
const maxWaiting = 1 << 14

func newQueue() *queue { return &queue{changed: make(chan struct{}, 1)} }

// put adds a packet, unless too many wait.
func (q *queue) put(p packet) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= maxWaiting {
		return false
	}
	q.sent++
	heap.Push(&q.waiting, numbered{p, q.sent})
	if q.waiting[0].number == q.sent {
		select {
		case q.changed <- struct{}{}:
		default:
		}
	}
	return true
}

// take is the packet in front once it is due; otherwise ok is false, and wait says for how
// long it is not, or that there is none.
func (q *queue) take(now time.Time) (p packet, wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return packet{}, time.Hour, false
	}
	if wait := q.waiting[0].due.Sub(now); wait > 0 {
		return packet{}, wait, false
	}
	return heap.Pop(&q.waiting).(numbered).packet, 0, true
}

type numbered struct {
	packet
	number uint64
}

// byDue is a heap.
type byDue []numbered

func (b byDue) Len() int      { return len(b) }
func (b byDue) Swap(i, j int) { b[i], b[j] = b[j], b[i] }
func (b *byDue) Push(p any)   { *b = append(*b, p.(numbered)) }
func (b byDue) Less(i, j int) bool {
	if b[i].due.Equal(b[j].due) {
		return b[i].number < b[j].number
	}
	return b[i].due.Before(b[j].due)
}

func (b *byDue) Pop() any {
	last := len(*b) - 1
	p := (*b)[last]
	(*b)[last] = numbered{}
	*b = (*b)[:last]
	return p
}
