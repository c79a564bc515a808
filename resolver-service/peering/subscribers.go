package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of what is kept for those who ask.
const (
	maxStreams     = 32   // of one cluster, for all its replicas
	maxRunning     = 64   // with those that were ended and are not gone yet
	maxSubscribers = 1000 // clusters that are remembered without a stream
)

// askers are the clusters that ask what is exported to them. Any goroutine may use it.
type subscribers struct {
	mu        sync.Mutex
	byCluster map[string]*subscriber
}

type subscriber struct {
	streams   []*subscription // oldest first, without those that were ended
	running   int             // with those
	digest    viewDigest
	quota     streamQuota
	idleSince time.Time // when the last stream ended; zero while there is one
}

// asking is one stream.
type subscription struct{ end context.CancelCauseFunc }

var errTooMany = errors.New("the cluster has made many streams since; the oldest are ended")

// come notes a stream of a cluster. Where there are too many, the oldest is ended: it is
// likelier to be one whose other end is gone than the newest. The error is that too many
// can't be ended, or come one after the other.
func (a *subscribers) add(cluster string, end context.CancelCauseFunc) (by *subscriber, leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byCluster == nil {
		a.byCluster = map[string]*subscriber{}
	}
	by = a.byCluster[cluster]
	if by == nil {
		a.makeRoom()
		by = &subscriber{}
		by.digest.onFullScan = by.quota.charge
		a.byCluster[cluster] = by
	}
	switch {
	case by.running >= maxRunning:
		return by, nil, status.Errorf(codes.ResourceExhausted, "cluster %s has %d streams that it does not read; at most %d", cluster, maxRunning, maxRunning)
	case !by.quota.allow():
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
	s := &subscription{end}
	by.streams, by.idleSince = append(by.streams, s), time.Time{}
	return by, func() { a.remove(by, s) }, nil
}

func (a *subscribers) remove(by *subscriber, s *subscription) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by.running--
	for i, other := range by.streams {
		if other == s {
			by.streams = append(by.streams[:i:i], by.streams[i+1:]...)
			break
		}
	}
	if len(by.streams) == 0 && by.idleSince.IsZero() {
		by.idleSince = time.Now()
		by.digest.forget()
	}
}

// forget makes room for one more cluster; with mu held.
func (a *subscribers) makeRoom() {
	if len(a.byCluster) < maxSubscribers {
		return
	}
	var oldest string
	for cluster, by := range a.byCluster {
		if by.running == 0 && (oldest == "" || by.idleSince.Before(a.byCluster[oldest].idleSince)) {
			oldest = cluster
		}
	}
	delete(a.byCluster, oldest)
}

// any tells whether any cluster has a stream.
func (a *subscribers) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, by := range a.byCluster {
		if len(by.streams) > 0 {
			return true
		}
	}
	return false
}

// of is how many streams a cluster has, and since when it has none; the zero time where
// it has never had one.
func (a *subscribers) streamsOf(cluster string) (streams int, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by := a.byCluster[cluster]
	if by == nil {
		return 0, time.Time{}
	}
	return len(by.streams), by.idleSince
}
