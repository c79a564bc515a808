package pages

import (
	"net/http"
	"sync"
	"time"
)

// refetches answers pages that stay open and are fetched again because something has changed. Nobody waits
// for one, so all browsers together take a part of one processor at most, and those who ask for the same
// page share an answer.
type refetches struct {
	turn chan struct{} // holds a value while nobody has the turn

	mu      sync.Mutex
	waiting map[string]*refetch // by URL: those that have not begun
}

// refetch is an answer for all who asked before it was begun.
type refetch struct {
	done  chan struct{} // closed once the rest stands
	mark  string        // of the state before
	begun time.Time
	shown *content
	err   error
}

// rests is how many times as long as it took to answer nobody has the turn then.
const rests = 3

func newRefetches() *refetches {
	r := &refetches{turn: make(chan struct{}, 1), waiting: map[string]*refetch{}}
	r.turn <- struct{}{}
	return r
}

// isRefetch tells whether a script has asked, and not a person.
func isRefetch(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return r.Method == http.MethodGet && mode != "" && mode != "navigate"
}

// view makes what a page shows, once for all who wait for it.
func (f *refetches) view(r *request, v view) (*content, error) {
	url := r.URL.RequestURI()
	f.mu.Lock()
	next, waits := f.waiting[url]
	if !waits {
		next = &refetch{done: make(chan struct{})}
		f.waiting[url] = next
	}
	f.mu.Unlock()
	if !waits {
		f.answer(next, url, r, v)
	}
	select {
	case <-next.done:
		r.mark, r.now = next.mark, next.begun
		return next.shown, next.err
	case <-r.ctx.Done():
		return nil, errCrowded
	}
}

var errCrowded = refuse(http.StatusServiceUnavailable, "too many pages are open for all of them to follow")

// answer waits for the turn, and answers.
func (f *refetches) answer(next *refetch, url string, r *request, v view) {
	defer close(next.done)
	got := false
	select {
	case <-f.turn:
		got = true
	case <-r.ctx.Done():
	}
	f.mu.Lock()
	delete(f.waiting, url)
	f.mu.Unlock()
	if !got {
		next.err = errCrowded
		return
	}
	next.begun = time.Now()
	_, r.mark = r.watch.newest()
	next.mark, r.now = r.mark, next.begun
	next.shown, next.err = v(r)
	time.AfterFunc(rests*time.Since(next.begun), func() { f.turn <- struct{}{} })
}
