package static

import (
	"container/heap"
	"time"
)

// queue has the targets that are to be asked, the next first.
type queue []*target

func (q *queue) put(t *target, due time.Time) {
	t.due = due
	if t.place == outside {
		heap.Push(q, t)
	} else {
		heap.Fix(q, t.place)
	}
}

func (q *queue) remove(t *target) {
	if t.place != outside {
		heap.Remove(q, t.place)
	}
}

// next takes out a target that is due, or says when there is one; zero for never.
func (q *queue) next(now time.Time) (*target, time.Time) {
	if len(*q) == 0 {
		return nil, time.Time{}
	}
	if first := (*q)[0]; first.due.After(now) {
		return nil, first.due
	}
	return heap.Pop(q).(*target), time.Time{}
}

// Len, Less, Swap, Push and Pop are those of heap.Interface.
func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(x any) {
	t := x.(*target)
	t.place = len(*q)
	*q = append(*q, t)
}

func (q *queue) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	t.place = outside
	return t
}
