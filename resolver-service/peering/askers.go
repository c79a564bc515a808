package peering

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of what is kept for those who ask.
const (
	maxStreams = 32   // of one cluster, for all its replicas
	maxRunning = 64   // with those that were ended and are not gone yet
	maxAskers  = 1000 // clusters that are remembered without a stream
)

// askers are the clusters that ask what is exported to them. Any goroutine may use it.
type askers struct {
	log *slog.Logger

	mu  sync.Mutex
	all map[string]*asker
}

type asker struct {
	streams []*asking // oldest first, without those that were ended
	running int       // with those
	content content
	budget  budget
	lines   lines
	left    time.Time // when the last stream ended; zero while there is one
}

// asking is one stream.
type asking struct{ end context.CancelCauseFunc }

var errTooMany = errors.New("the cluster has made many streams since; the oldest are ended")

// come notes a stream of a cluster. Where there are too many, the oldest is ended: it is
// likelier to be one whose other end is gone than the newest. The error is that too many
// can't be ended, or come one after the other.
func (a *askers) come(cluster string, end context.CancelCauseFunc) (by *asker, leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]*asker{}
	}
	by = a.all[cluster]
	if by == nil {
		a.forget()
		by = &asker{lines: lines{log: a.log}}
		by.content.costs = by.budget.owe
		a.all[cluster] = by
	}
	switch {
	case by.running >= maxRunning:
		return by, nil, status.Errorf(codes.ResourceExhausted, "cluster %s has %d streams that it does not read; at most %d", cluster, maxRunning, maxRunning)
	case !by.budget.take():
		// A link takes it as a connection that was no good: it tries again soon, and more
		// and more rarely.
		return by, nil, status.Errorf(codes.Unavailable,
			"cluster %s has made too many streams of late: it may make %d at once and then %d a second, fewer where much is exported to it; "+
				"it may try again in a moment. If this goes on, find out what ends its connections", cluster, streamBurst, streamRate)
	}
	by.running++
	if len(by.streams) >= maxStreams {
		by.streams[0].end(errTooMany)
		by.streams = by.streams[1:]
	}
	s := &asking{end}
	by.streams, by.left = append(by.streams, s), time.Time{}
	return by, func() { a.leave(by, s) }, nil
}

func (a *askers) leave(by *asker, s *asking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by.running--
	for i, other := range by.streams {
		if other == s {
			by.streams = append(by.streams[:i:i], by.streams[i+1:]...)
			break
		}
	}
	if len(by.streams) == 0 && by.left.IsZero() {
		by.left = time.Now()
		by.content.forget()
	}
}

// forget makes room for one more cluster; with mu held.
func (a *askers) forget() {
	if len(a.all) < maxAskers {
		return
	}
	var oldest string
	for cluster, by := range a.all {
		if by.running == 0 && (oldest == "" || by.left.Before(a.all[oldest].left)) {
			oldest = cluster
		}
	}
	delete(a.all, oldest)
}

// any tells whether any cluster has a stream.
func (a *askers) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, by := range a.all {
		if len(by.streams) > 0 {
			return true
		}
	}
	return false
}

// of is how many streams a cluster has, and since when it has none; the zero time where
// it has never had one.
func (a *askers) of(cluster string) (streams int, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by := a.all[cluster]
	if by == nil {
		return 0, time.Time{}
	}
	return len(by.streams), by.left
}
